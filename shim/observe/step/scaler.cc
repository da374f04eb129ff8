// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/scaler.h"

#include <ATen/record_function.h>

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

void OnScalerOp(Observer& observer, ThreadState* thread, Frame& frame,
                const at::RecordFunction& range) noexcept {
  BusyScope busy(thread);
  if ((frame.op->families & kUnscales) != 0) {
    observer.steps.OnUnscale(FoundInf(thread, frame, kFoundInfOfCheck));
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
  observer.steps.OnScaleUpdate(observer, thread, {scale, known, found_inf});
}

void OnScaleUpdatedUnseen(const at::TensorBase& scale, const at::TensorBase& found_inf) noexcept {
  Here here;
  if (!FindHere(&here)) return;
  Observer& observer = *here.observer;
  const wire::Level watched = observer.level.watched();
  observer.level.RecordIfHidden();
  const bool by_ops = WatchesEveryOp(watched) && !observer.Blind() && at::isRecordFunctionEnabled();
  const bool idle = watched == wire::Level::kIdle && !observer.level.off_to_measure();
  if (idle || by_ops) return;
  BusyScope busy(here.thread);
  observer.poison_watch.At(observer, here.thread, PoisonWatch::Border::kScaleUpdated);
  PlainTensor plain[2];
  wire::Unchecked reason;
  if (DescribeTensor(scale, &plain[0], &reason) != Readable::kYes ||
      DescribeTensor(found_inf, &plain[1], &reason) != Readable::kYes) {
    return;
  }
  if (plain[0].gpu != plain[1].gpu) return;
  if (plain[0].gpu >= 0) {
    GpuTensors on_gpu(observer, here.thread, /*counts=*/false);
    for (const PlainTensor& number : plain) on_gpu.Add(number, wire::Target::kNone, nullptr);
    (void)observer.gpu_events.EnqueueTensors(observer, here.thread,
                                             GpuEventQueue::CheckedAs::kScaleOfStep, on_gpu.list());
    return;
  }
  double numbers[2];
  if (!ReadNumber(plain[0].view, &numbers[0]) || !ReadNumber(plain[1].view, &numbers[1])) return;
  const bool skipped = numbers[1] != 0;
  // Parameters are read after an update, and this step has none. Bad ones make every step like
  // this.
  if (skipped && watched == wire::Level::kCanary && !observer.Poisoned()) {
    (void)ReadAllNamed(observer, here.thread);
  }
  observer.steps.OnScaleUpdate(observer, here.thread, {numbers[0], /*known=*/true, skipped});
}

}  // namespace nanwatch
