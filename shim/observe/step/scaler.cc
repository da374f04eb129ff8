// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/scaler.h"

#include <ATen/record_function.h>

#include "shim/observe/events/fact_sink.h"
#include "shim/observe/events/gpu_tensors.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/step/poison_watch.h"
#include "shim/observe/step/scaler_state.h"
#include "shim/observe/step/step_scope.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/torch/torch_tensor.h"
#include "shim/observe/unseen/named_values.h"

namespace nanwatch {
namespace {

// found_inf is argument 1 of the check, which writes it, and argument 2 of the update. Without seen
// inputs nothing bad was alive, so the gradients were finite.
constexpr int kFoundInfOfCheck = 1;
constexpr int kFoundInfOfUpdate = 2;

bool FoundInf(const ThreadState* thread, const Frame& frame, int argument) {
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    double value = 0;
    if (input.argument == argument && IsAlive(input) && ReadNumber(input.View(), &value))
      return value != 0;
  }
  return false;
}

}  // namespace

void ScalerWatch::OnOp(ThreadState* thread, Frame& frame,
                       const at::RecordFunction& range) noexcept {
  BusyScope busy(thread);
  if ((frame.op->families & kUnscales) != 0) {
    uses_.state.OnUnscale(FoundInf(thread, frame, kFoundInfOfCheck));
    return;
  }
  double scale = 0;
  bool known = false;
  const auto& outputs = range.outputs();
  PlainTensor plain;
  wire::Unchecked reason;
  if (!outputs.empty() && outputs.back().isTensor() &&
      ReadTensor(outputs.back().toTensor(), &plain, &reason) == Readable::kYes) {
    known = ReadNumber(plain.view, &scale);
  }
  // The check itself may have gone by unseen, with the whole scaler.step.
  const bool found_inf = FoundInf(thread, frame, kFoundInfOfUpdate);
  uses_.steps.OnScaleUpdate(thread, {scale, known, found_inf});
}

// By the op, or not at all.
bool ScalerWatch::IsSeenOtherwise() const noexcept {
  const wire::Level watched = uses_.level.watched();
  const bool by_ops =
      WatchesEveryOp(watched) && !uses_.poison.Blind() && at::isRecordFunctionEnabled();
  return by_ops || (watched == wire::Level::kIdle && !uses_.level.off_to_measure());
}

void ScalerWatch::OnUpdatedUnseen(ThreadState* thread, const at::TensorBase& scale,
                                  const at::TensorBase& found_inf) noexcept {
  if (IsSeenOtherwise()) return;
  BusyScope busy(thread);
  uses_.poison_watch.At(thread, PoisonWatch::Border::kScaleUpdated);
  PlainTensor plain[2];
  wire::Unchecked reason;
  if (DescribeTensor(scale, &plain[0], &reason) != Readable::kYes ||
      DescribeTensor(found_inf, &plain[1], &reason) != Readable::kYes) {
    return;
  }
  if (plain[0].gpu != plain[1].gpu) return;
  if (plain[0].gpu >= 0) {
    GpuTensors on_gpu(uses_.late, thread, /*counts=*/false);
    for (const PlainTensor& number : plain) on_gpu.Add(number, wire::Target::kNone, nullptr);
    (void)uses_.late.Enqueue(thread, TensorsToCheck{CheckedAs::kScaleOfStep, on_gpu.list()});
    return;
  }
  double numbers[2];
  if (!ReadNumber(plain[0].view, &numbers[0]) || !ReadNumber(plain[1].view, &numbers[1])) return;
  const bool skipped = numbers[1] != 0;
  // Parameters are read after an update, and this step has none. Bad ones make every step like
  // this.
  if (skipped && uses_.level.watched() == wire::Level::kCanary && !uses_.poison.Poisoned()) {
    (void)uses_.named_values.ReadAll(thread);
  }
  uses_.steps.OnScaleUpdate(thread, {numbers[0], /*known=*/true, skipped});
}

}  // namespace nanwatch
