// SPDX-License-Identifier: Apache-2.0
// Level sampled as ops see it (level/sampling.h).
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstdint>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class SampledOutputs {
 public:
  // An op that ends has left `tensor`, output `index`, and what was read of it is clean. False: it
  // has to be read in full.
  [[nodiscard]] virtual bool Record(ThreadState* thread, const Frame& frame,
                                    const at::TensorBase& tensor, const PlainTensor& plain,
                                    uint8_t index) noexcept = 0;
  // What an op has left is bad. At any level.
  virtual void OnBadOutputs(ThreadState* thread, Frame& frame, const BadOutput* outputs,
                            int count) noexcept = 0;

 protected:
  ~SampledOutputs() = default;
};

}  // namespace nanwatch
