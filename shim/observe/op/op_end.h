// SPDX-License-Identifier: Apache-2.0
// An op ends, of whatever kind: what it has left is checked (output_scan.h), and what follows from
// that is recorded. The commonest case, an op with one clean result, is written out in
// callbacks.cc.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <vector>

#include "shim/observe/events/step_marks.h"
#include "shim/observe/thread/thread_state.h"
#include "shim/observe/torch/op_table.h"

namespace nanwatch {

class Capsules;
class CompiledRegions;
class GpuEventQueue;
class InputTracking;
class LevelState;
class OpKernels;
class OutputChecker;
class PlainUpdates;
class SpecialOps;
class StepScope;
class WatchedOps;

class OpEnd {
 public:
  // All outlive it.
  struct Parts {
    const InputTracking& input_tracking;
    const LevelState& level;
    const StepMarks& marks;
    StepScope& steps;
    GpuEventQueue& gpu;
    OpKernels& kernels;
    CompiledRegions& regions;
    OutputChecker& outputs;
    SpecialOps& special;
    WatchedOps& watched;
    PlainUpdates& plain_updates;
    Capsules& capsules;
  };
  explicit OpEnd(const Parts& parts) noexcept : parts_(parts) {}

  void End(ThreadState* thread, const at::RecordFunction& op);
  // Level sampled: the op that ends in frame `at` has left one result, on a GPU, which is noted for
  // its batch. False: nothing is done, and End is to be called.
  [[nodiscard]] bool Notes(ThreadState* thread, uint32_t at,
                           const std::vector<c10::IValue>& outputs);

 private:
  void EndFrame(ThreadState* thread, Frame& frame, Frame* parent, const at::RecordFunction& op);
  void EndChecked(ThreadState* thread, Frame& frame, Frame* parent, const at::RecordFunction& op);
  void EndSkipped(ThreadState* thread, Frame& frame, Frame* parent, const at::RecordFunction& op);

  const Parts parts_;
};

// Whether an op that writes in place may be an update by hand: after a pass, outside any node of it
// and any optimizer's step.
inline bool IsPlainUpdateDue(const StepMarks& marks, const ThreadState* thread,
                             const OpTraits& op) {
  return op.in_place && marks.plain_update_due.load(std::memory_order_relaxed) &&
         thread->optimizer_depth == 0 && thread->nodes_open == 0;
}

}  // namespace nanwatch
