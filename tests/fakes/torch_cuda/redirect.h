// Runs the operators of tensors on the fake device by their CPU kernels. See redirect.cc.
#pragma once

namespace nanwatch::fake {

// Puts our kernels in the place of the real ones for CUDA. Once, when libtorch_cuda has registered
// its own and before another thread calls an operator.
void RedirectOperators();

}  // namespace nanwatch::fake
