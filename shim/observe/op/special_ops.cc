// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/special_ops.h"

#include <ATen/core/ivalue.h>

#include <cmath>
#include <vector>

#include "shim/observe/finding/findings.h"
#include "shim/observe/finding/scalar_reads.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/op/batch_norm.h"
#include "shim/observe/step/scaler.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/unseen/collective_results.h"

namespace nanwatch {
namespace {

// In evaluation batch normalization only reads its running statistics, and returns an empty mean of
// the batch.
bool IsEvaluation(const std::vector<c10::IValue>& outputs) {
  return outputs.size() > 1 && outputs[1].isTensor() && outputs[1].toTensor().defined() &&
         outputs[1].toTensor().numel() == 0;
}

}  // namespace

void SpecialOps::EndScalarRead(ThreadState* thread, Frame& frame, const at::RecordFunction& op) {
  const auto& outputs = op.outputs();
  if (!outputs.empty() && outputs.back().isDouble() && !std::isfinite(outputs.back().toDouble())) {
    BusyScope busy(thread);
    const double number = outputs.back().toDouble();
    if (HasGpuInput(thread, frame)) {
      gpu_.EnqueueScalarRead(thread, frame, number);
    } else {
      scalar_reads_.OnRead(thread, frame, number);
    }
  }
  // The host has waited for the GPU: all that came before is answered.
  gpu_.Settle();
}

void SpecialOps::End(ThreadState* thread, Frame& frame, const at::RecordFunction& op) {
  const uint32_t families = frame.op->families;
  if ((families & kReadsScalar) != 0) EndScalarRead(thread, frame, op);
  if ((families & kBatchNorm) != 0 && !IsEvaluation(op.outputs())) {
    thread->statistics_op_plus_one = thread->counters.ops_seen + 1;
    statistics_.Check(thread, frame, op.outputs());
  }
  if ((families & kHandsOut) != 0) {
    collectives_.OnHandedOut(thread, frame, op.outputs());
  }
  if ((families & (kUnscales | kUpdatesScale)) != 0 && !HasGpuInput(thread, frame)) {
    scaler_.OnOp(thread, frame, op);
  }
}

}  // namespace nanwatch
