// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/op_end.h"

#include <ATen/core/ivalue.h>

#include "shim/observe/capsule/capsules.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/op_kernels.h"
#include "shim/observe/op/compiled_regions.h"
#include "shim/observe/op/output_scan.h"
#include "shim/observe/op/plain_updates.h"
#include "shim/observe/op/special_ops.h"
#include "shim/observe/op/watched_ops.h"
#include "shim/observe/step/step_scope.h"
#include "shim/observe/thread/checked_results.h"
#include "shim/observe/torch/input_tracking.h"

namespace nanwatch {
namespace {

OutputScan ScanOf(ThreadState* thread, Frame& frame, Frame* parent) {
  OutputScan scan;
  scan.thread = thread;
  scan.frame = &frame;
  scan.parent = parent;
  scan.bad = thread->bad_outputs;
  return scan;
}

// What an update writes is read in full, wherever it may be one, and what was made of something
// bad.
bool MaySample(const StepMarks& marks, const ThreadState* thread, const Frame& frame) {
  return !IsPlainUpdateDue(marks, thread, *frame.op) && thread->optimizer_depth == 0 &&
         thread->regions_open == 0 && !frame.input_bad && !thread->proof;
}

}  // namespace

// The op's outputs are to be checked.
__attribute__((noinline)) void OpEnd::EndChecked(ThreadState* thread, Frame& frame, Frame* parent,
                                                 const at::RecordFunction& op) {
  OutputScan scan = ScanOf(thread, frame, parent);
  scan.samples =
      parts_.level.watched() == wire::Level::kSampled && MaySample(parts_.marks, thread, frame);
  parts_.outputs.Check(scan, op.outputs());
  const bool on_gpu = parts_.gpu.On() && parts_.outputs.EnqueueOnGpu(scan);
  const OpTraits& traits = *frame.op;
  if (__builtin_expect((traits.families & kNeedsEnd) != 0, 0)) {
    parts_.special.End(thread, frame, op);
  }
  if (__builtin_expect(scan.bad_count != 0 || frame.inputs_seen || frame.inputs_count != 0, 0)) {
    parts_.watched.End(thread, scan, op.outputs(), on_gpu);
  }
  if (__builtin_expect(IsPlainUpdateDue(parts_.marks, thread, traits), 0)) {
    parts_.plain_updates.OnOp(thread, op);
  }
}

// An op whose outputs need no check, in the rare case that there is something else to do: it writes
// arguments that it does not return, is one of GradScaler's, or inputs are being recorded.
__attribute__((noinline, cold)) void OpEnd::EndSkipped(ThreadState* thread, Frame& frame,
                                                       Frame* parent,
                                                       const at::RecordFunction& op) {
  OutputScan scan = ScanOf(thread, frame, parent);
  if (frame.is_region && --thread->regions_open == 0) parts_.regions.End(thread);
  if (frame.kind == FrameKind::kOp) parts_.watched.EndSkipped(thread, frame, parent, op.outputs());
  const bool on_gpu = parts_.gpu.On() && parts_.outputs.EnqueueOnGpu(scan);
  if (frame.op->writes_unseen) {
    const bool unseen = frame.checked_count == 0 && !frame.child_bad;
    if (frame.inputs_seen) {
      OutputChecker::CheckWrittenArguments(scan);
    } else if (unseen) {
      ++thread->counters.unchecked[static_cast<int>(wire::Unchecked::kWrittenUnseen)];
    }
    // The next update's is seen, too, wherever this one was.
    if (unseen && thread->optimizer_depth != 0) parts_.steps.OnFusedSeen();
  }
  if ((frame.op->families & kNeedsEnd) != 0) parts_.special.End(thread, frame, op);
  if (scan.bad_count != 0 || frame.inputs_seen || frame.inputs_count != 0) {
    parts_.watched.End(thread, scan, op.outputs(), on_gpu);
  }
}

bool OpEnd::Notes(ThreadState* thread, uint32_t at, const std::vector<c10::IValue>& outputs) {
  const Frame& frame = thread->frames[at];
  if (!parts_.gpu.On() || frame.op->transparent || outputs.size() != 1 ||
      !outputs.front().isTensor()) {
    return false;
  }
  const at::TensorBase& result = outputs.front().toTensor();
  if (!parts_.gpu.NoteResult(thread, frame, result)) return false;
  if (at != 0) RecordChecked(&thread->frames[at - 1], result.unsafeGetTensorImpl());
  return true;
}

void OpEnd::End(ThreadState* thread, const at::RecordFunction& op) {
  if (__builtin_expect(thread->depth == 0, 0)) return;  // began before we were registered
  const uint32_t at = --thread->depth;
  if (__builtin_expect(at >= ThreadState::kFramesMax, 0)) return;
  Frame& frame = thread->frames[at];
  if (frame.hidden) return;
  if (__builtin_expect(frame.kernels_pushed, 0)) parts_.kernels.End();
  EndFrame(thread, frame, at != 0 ? &thread->frames[at - 1] : nullptr, op);
  if (__builtin_expect(parts_.capsules.on(), 0)) parts_.capsules.OnEnd(*thread, frame);
}

void OpEnd::EndFrame(ThreadState* thread, Frame& frame, Frame* parent,
                     const at::RecordFunction& op) {
  const OpTraits& traits = *frame.op;
  if (!traits.skip) {
    EndChecked(thread, frame, parent, op);
    return;
  }
  // A view or an allocation passes for checked, so that a composite that returns it is not checked
  // again.
  if (parent != nullptr && parent->op->transparent && frame.kind == FrameKind::kOp) {
    const auto& outputs = op.outputs();
    if (!outputs.empty() && outputs.back().isTensor()) {
      RecordChecked(parent, outputs.back().toTensor().unsafeGetTensorImpl());
    }
  }
  if (__builtin_expect(traits.writes_unseen || (traits.families & kNeedsEnd) != 0 ||
                           frame.cleared_flags != 0 || parts_.input_tracking.armed(),
                       0)) {
    EndSkipped(thread, frame, parent, op);
  }
}

}  // namespace nanwatch
