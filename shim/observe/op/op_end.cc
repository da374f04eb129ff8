// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/op_end.h"

#include <ATen/core/ivalue.h>

#include <cmath>
#include <vector>

#include "shim/observe/finding/findings.h"
#include "shim/observe/finding/scalar_reads.h"
#include "shim/observe/op/batch_norm.h"
#include "shim/observe/op/compiled_regions.h"
#include "shim/observe/op/output_scan.h"
#include "shim/observe/step/scaler.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/unseen/collective_results.h"

namespace nanwatch::callbacks {
namespace {

constexpr uint32_t kArmedOpsPerSweep = 16;
constexpr uint32_t kSweepBudget = 32;

// Called by Python itself, not by another op.
bool IsOutermost(const ThreadState* thread, const Frame* parent) {
  return thread->nodes_open == 0 && (parent == nullptr || parent->kind == FrameKind::kRange);
}

void EndSkippedArmed(Observer& observer, ThreadState* thread, Frame& frame, const Frame* parent,
                     const std::vector<c10::IValue>& outputs) {
  if (observer.input_tracking.armed() && (frame.op->families & kReadsAll) != 0 &&
      IsOutermost(thread, parent)) {
    BusyScope busy(thread);
    EmitReadAll(observer, thread, frame);
  }
  if (!observer.input_tracking.armed() || outputs.empty() || !outputs.back().isTensor()) return;
  PlainTensor plain;
  wire::Unchecked reason;
  if (DescribeTensor(outputs.back().toTensor(), &plain, &reason) != Readable::kYes) return;
  const bool creates = (frame.op->families & kCreates) != 0;
  if (!creates && !(frame.sequence >= 0 && frame.op->is_view)) return;
  if (plain.gpu < 0) return OnSkippedOutput(observer, thread, frame, plain);
  if (observer.gpu_events.On()) observer.gpu_events.EnqueueView(observer, thread, frame, plain);
}

__attribute__((noinline, cold)) void EndWatched(Observer& observer, ThreadState* thread,
                                                OutputScan& scan,
                                                const std::vector<c10::IValue>& outputs,
                                                bool on_gpu) {
  // An op that throws ends without outputs: nothing is known of what it wrote.
  const bool threw = outputs.empty() && scan.frame->op->returns != 0;
  BusyScope busy(thread);
  if (scan.bad_count != 0) {
    if (observer.gpu_events.On()) observer.gpu_events.SettleInputs(observer, thread, *scan.frame);
    observer.cuts.OnBadOutputs(observer, thread, *scan.frame, scan.bad, scan.bad_count);
    if (scan.more_bad) RememberTheRest(observer, scan.bad[0], outputs);
    if (scan.parent != nullptr) scan.parent->child_bad = true;
  } else if (scan.frame->inputs_seen && !threw && !on_gpu) {
    OnCleanOutputs(observer, thread, *scan.frame);
  }
  DropInputs(thread, *scan.frame);
  if (++thread->armed_ops % kArmedOpsPerSweep == 0) {
    observer.bad_values.Sweep(kSweepBudget);
    if (observer.bad_values.transient() == 0) observer.input_tracking.Disarm();
  }
}

// What only some ops need, after their outputs were looked at.
__attribute__((noinline, cold)) void EndSpecial(Observer& observer, ThreadState* thread,
                                                Frame& frame, const at::RecordFunction& range) {
  const uint32_t families = frame.op->families;
  if ((families & kReadsScalar) != 0) {
    const auto& outputs = range.outputs();
    if (!outputs.empty() && outputs.back().isDouble() &&
        !std::isfinite(outputs.back().toDouble())) {
      BusyScope busy(thread);
      const double number = outputs.back().toDouble();
      if (HasGpuInput(thread, frame)) {
        observer.gpu_events.EnqueueScalarRead(observer, thread, frame, number);
      } else {
        OnScalarRead(observer, thread, frame, number);
      }
    }
    // The host has waited for the GPU: all that came before is answered.
    observer.gpu_events.Settle(observer);
  }
  if ((families & kBatchNorm) != 0) CheckRunningStatistics(observer, thread, frame);
  if ((families & kHandsOut) != 0)
    observer.collective_results.OnHandedOut(observer, thread, frame, range.outputs());
  if ((families & (kUnscales | kUpdatesScale)) != 0 && !HasGpuInput(thread, frame)) {
    OnScalerOp(observer, thread, frame, range);
  }
}

__attribute__((noinline, cold)) void MaybePlainUpdate(Observer& observer, ThreadState* thread,
                                                      const at::RecordFunction& range) {
  const auto& outputs = range.outputs();
  if (outputs.empty() || !outputs.back().isTensor()) return;
  const at::TensorBase& tensor = outputs.back().toTensor();
  if (!tensor.defined()) return;
  const PythonNames& names = observer.python->names();
  // A forward pass writes buffers and activations in place, too, between two passes that
  // accumulate.
  bool is_parameter = tensor.requires_grad() && tensor.is_leaf();
  if (!tensor.requires_grad()) {
    const NamedTensor* named = names.FindByImpl(tensor.unsafeGetTensorImpl());
    if (named == nullptr && tensor.has_storage()) {
      named = names.FindByStorage(
          tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
    }
    is_parameter = named != nullptr && named->kind == NamedTensorKind::kParameter;
  }
  if (!is_parameter) return;
  BusyScope busy(thread);
  observer.steps.OnPlainUpdate(observer, thread);
}

// The op's outputs are to be looked at.
__attribute__((noinline)) void EndChecked(Observer& observer, ThreadState* thread, Frame& frame,
                                          Frame* parent, const at::RecordFunction& range) {
  OutputScan scan;
  scan.thread = thread;
  scan.frame = &frame;
  scan.parent = parent;
  scan.bad = thread->bad_outputs;
  scan.notes = Cuts::Notes(observer, thread, *frame.op);
  CheckOutputs(scan, range.outputs());
  const bool on_gpu = observer.gpu_events.On() && RecordOnGpu(observer, scan);
  const OpTraits& op = *frame.op;
  if (__builtin_expect((op.families & kNeedsEnd) != 0, 0)) {
    EndSpecial(observer, thread, frame, range);
  }
  if (__builtin_expect(scan.bad_count != 0 || frame.inputs_seen || frame.inputs_count != 0, 0)) {
    EndWatched(observer, thread, scan, range.outputs(), on_gpu);
  }
  if (__builtin_expect(IsPlainUpdateDue(observer, thread, op), 0)) {
    MaybePlainUpdate(observer, thread, range);
  }
}

// An op whose outputs need no look, in the rare case that there is something else to do: it writes
// arguments that it does not return, is one of GradScaler's, or inputs are being noted.
__attribute__((noinline, cold)) void EndSkippedSpecial(Observer& observer, ThreadState* thread,
                                                       Frame& frame, Frame* parent,
                                                       const at::RecordFunction& range) {
  OutputScan scan;
  scan.thread = thread;
  scan.frame = &frame;
  scan.parent = parent;
  scan.bad = thread->bad_outputs;
  if (frame.is_region && --thread->regions_open == 0) compiled_regions::End(observer, thread);
  if (frame.kind == FrameKind::kOp)
    EndSkippedArmed(observer, thread, frame, parent, range.outputs());
  const bool on_gpu = observer.gpu_events.On() && RecordOnGpu(observer, scan);
  if (frame.op->writes_unseen) {
    const bool unseen = frame.checked_count == 0 && !frame.child_bad;
    if (frame.inputs_seen) {
      CheckWrittenArguments(scan);
    } else if (unseen) {
      ++thread->counters.unchecked[static_cast<int>(wire::Unchecked::kWrittenUnseen)];
    }
    // The next update's is seen, too, wherever this one was.
    if (unseen && thread->optimizer_depth != 0) observer.steps.OnFusedSeen();
  }
  if ((frame.op->families & kNeedsEnd) != 0) EndSpecial(observer, thread, frame, range);
  if (scan.bad_count != 0 || frame.inputs_seen || frame.inputs_count != 0) {
    EndWatched(observer, thread, scan, range.outputs(), on_gpu);
  }
}

void EndOp(Observer& observer, ThreadState* thread, const at::RecordFunction& range) {
  if (__builtin_expect(thread->depth == 0, 0)) return;  // began before we were registered
  const uint32_t at = --thread->depth;
  if (__builtin_expect(at >= ThreadState::kFramesMax, 0)) return;
  Frame& frame = thread->frames[at];
  if (frame.hidden) return;
  if (__builtin_expect(frame.kernels_pushed, 0)) observer.op_kernels.End();
  const OpTraits& op = *frame.op;
  Frame* parent = at != 0 ? &thread->frames[at - 1] : nullptr;
  if (!op.skip) {
    EndChecked(observer, thread, frame, parent, range);
    return;
  }
  // A view or an allocation passes for looked at, so that a composite that returns it is not looked
  // at again.
  if (parent != nullptr && parent->op->transparent && frame.kind == FrameKind::kOp) {
    const auto& outputs = range.outputs();
    if (!outputs.empty() && outputs.back().isTensor()) {
      RecordChecked(parent, outputs.back().toTensor().unsafeGetTensorImpl());
    }
  }
  if (__builtin_expect(op.writes_unseen || (op.families & kNeedsEnd) != 0 ||
                           frame.cleared_flags != 0 || observer.input_tracking.armed(),
                       0)) {
    EndSkippedSpecial(observer, thread, frame, parent, range);
  }
}

}  // namespace

void EndSlowly(const at::RecordFunction& op) {
  Here here;
  if (!FindHere(&here)) return;
  EndOp(*here.observer, here.thread, op);
}

}  // namespace nanwatch::callbacks
