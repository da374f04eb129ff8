// SPDX-License-Identifier: Apache-2.0
// Level layer as ops see it: what they leave is recorded and read later (level/cuts.h). Called at
// that level only, but for what it says itself.
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstdint>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class LayerValues {
 public:
  // Reading as many bytes that were just written takes as long as recording them: some 100 ns.
  static constexpr uint64_t kCheckedAtOnceBytes = 4096;

  // An op that ends has left `tensor`, output `index`. False: it has to be checked.
  [[nodiscard]] virtual bool Record(ThreadState* thread, const Frame& frame,
                                    const at::TensorBase& tensor, const PlainTensor& plain,
                                    uint8_t index) noexcept = 0;
  // Whether these kinds in a small result are left to be met by a cut: -Inf alone, put there or
  // moved by the op, or made by it all the time.
  [[nodiscard]] virtual bool IsMask(const OpTraits& op, uint8_t kinds,
                                    const Layer* layer) noexcept = 0;
  // What an op left was checked at once, and is bad. At any level.
  virtual void OnBadOutputs(ThreadState* thread, Frame& frame, const BadOutput* outputs,
                            int count) noexcept = 0;
  // A backward pass begins; `root`: what made the value it begins at, or null.
  virtual void OnPass(ThreadState* thread, const SequenceEntry* root) noexcept = 0;
  // An autograd node ends. What it has saved of the forward is still there.
  virtual void OnNodeEnd(ThreadState* thread) noexcept = 0;

 protected:
  ~LayerValues() = default;
};

}  // namespace nanwatch
