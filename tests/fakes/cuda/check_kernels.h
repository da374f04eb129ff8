// SPDX-License-Identifier: Apache-2.0
// The kernels that nanwatch launches, for the fake driver: the real source, run by the CPU.
#pragma once

#include <cstdint>

// Bytes of tensors that all of them have read since the process began. Any thread.
extern "C" __attribute__((visibility("default"))) uint64_t fake_check_bytes_read();

namespace nanwatch::device {

// They look when they are launched; what they say is seen when the stream gets there. See
// fake_cuda_register_early_kernel.
void RegisterCheckKernels();

}  // namespace nanwatch::device
