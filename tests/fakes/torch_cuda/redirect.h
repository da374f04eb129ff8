// SPDX-License-Identifier: Apache-2.0
// Runs the operators of tensors on the fake device by their CPU kernels. See redirect.cc.
#pragma once

#include <c10/util/Exception.h>

namespace nanwatch::fake {

// For a c10::WarningUtils::WarningHandlerGuard: a kernel registered a second time is warned of, and
// that is what we are here for.
class NoWarnings final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// Puts our kernels in the place of the real ones for CUDA. Once, when libtorch_cuda has registered
// its own and before another thread calls an operator.
void RedirectOperators();

}  // namespace nanwatch::fake
