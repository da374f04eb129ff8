// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/watched_ops.h"

#include "shim/observe/finding/clean_outputs.h"
#include "shim/observe/finding/findings.h"
#include "shim/observe/finding/scalar_reads.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/op/output_scan.h"
#include "shim/observe/op/sampled_outputs.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/input_tracking.h"

namespace nanwatch {
namespace {

constexpr uint32_t kTrackedOpsPerSweep = 16;
constexpr uint32_t kSweepBudget = 32;

// Called by Python itself, not by another op.
bool IsOutermost(const ThreadState* thread, const Frame* parent) {
  return thread->nodes_open == 0 && (parent == nullptr || parent->kind == FrameKind::kRange);
}

}  // namespace

void WatchedOps::EndSkipped(ThreadState* thread, Frame& frame, const Frame* parent,
                            const std::vector<c10::IValue>& outputs) {
  if (input_tracking_.armed() && (frame.op->families & kReadsAll) != 0 &&
      IsOutermost(thread, parent)) {
    BusyScope busy(thread);
    scalar_reads_.OnReadAll(thread, frame);
  }
  if (!input_tracking_.armed() || outputs.empty() || !outputs.back().isTensor()) return;
  PlainTensor plain;
  wire::Unchecked reason;
  if (DescribeTensor(outputs.back().toTensor(), &plain, &reason) != Readable::kYes) return;
  const bool creates = (frame.op->families & kCreates) != 0;
  if (!creates && !(frame.sequence >= 0 && frame.op->is_view)) return;
  if (plain.gpu < 0) return clean_outputs_.OnSkipped(thread, frame, plain);
  if (gpu_.On()) gpu_.EnqueueView(thread, frame, plain);
}

void WatchedOps::End(ThreadState* thread, OutputScan& scan, const std::vector<c10::IValue>& outputs,
                     bool on_gpu) {
  // An op that throws ends without outputs: nothing is known of what it wrote.
  const bool threw = outputs.empty() && scan.frame->op->returns != 0;
  BusyScope busy(thread);
  if (scan.bad_count != 0) {
    if (gpu_.On()) gpu_.SettleInputs(thread, *scan.frame);
    sampled_.OnBadOutputs(thread, *scan.frame, scan.bad, scan.bad_count);
    if (scan.more_bad) outputs_.RememberTheRest(scan.bad[0], outputs);
    if (scan.parent != nullptr) scan.parent->child_bad = true;
  } else if (scan.frame->inputs_seen && !threw && !on_gpu) {
    clean_outputs_.OnClean(thread, *scan.frame);
  }
  DropInputs(thread, *scan.frame);
  if (++thread->armed_ops % kTrackedOpsPerSweep == 0) {
    bad_values_.Sweep(kSweepBudget);
    if (bad_values_.transient() == 0) input_tracking_.Disarm();
  }
}

}  // namespace nanwatch
