// SPDX-License-Identifier: Apache-2.0
// Which ops made the inputs of an op, as autograd knows it: without asking torch for the inputs.
//
//   y = addmm(bias, x, weight.t())
//   y.grad_fn -> AccumulateGrad(bias) | node of the op that made x | TBackward -> AccumulateGrad(weight)
//                a leaf                 a producer                   a view of a leaf
//
// Inputs that need no gradient have no edge, and go unseen here.
//
// Threads: on the thread of the op, when it has ended and its result is alive.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

struct Producers {
  static constexpr uint32_t kMax = 4;

  SequenceRef made[kMax];       // what the nodes of the producers stand for
  bool made_viewed[kMax] = {};  // a view of it was read, perhaps of a part
  uint8_t made_count = 0;
  const at::TensorBase* leaves[kMax];  // live as long as the op's result
  uint8_t leaf_count = 0;
  bool any = false;       // the op has a node at all
  bool complete = false;  // all its edges are in the two lists
  bool unlinked = false;  // something that it read may have no edge
};

// Takes no lock and no reference, and allocates nothing.
[[nodiscard]] Producers ProducersOf(const c10::TensorImpl& result) noexcept;

}  // namespace nanwatch
