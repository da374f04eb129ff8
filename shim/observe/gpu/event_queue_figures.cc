// SPDX-License-Identifier: Apache-2.0
// Tensors of a GPU that are measured one by one for a snapshot (figures/parameter_stats.h): as many
// as fit a launch (device/measure_launch.h) are one event, and behind all of a snapshot stands one
// that has it published. What was not launched, or was lost, is missing there.
#include <algorithm>

#include "shim/check/moments.h"
#include "shim/observe/events/gpu_tensors.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/figures/parameter_stats.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/gpu_counts.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {
namespace {

bool CanBeMeasured(const TensorView& view) {
  return view.numel > 0 && HasMoments(view.type) && IsOneRun(view, /*in_any_order=*/true);
}

}  // namespace

bool GpuEventQueue::MayMeasure(const ThreadState* thread) noexcept {
  return state_.checks.AllSetUp() && CapturedGraph(thread, /*begins=*/true) == nullptr;
}

bool GpuEventQueue::Enqueue(ThreadState* thread, const TensorsToMeasure& fact) noexcept {
  return EnqueueFigures(thread, fact.as, fact.tensors, fact.snapshot, fact.samples);
}

bool GpuEventQueue::EnqueueFigures(ThreadState* thread, CheckedAs as,
                                   std::span<const CheckedTensor> tensors, uint64_t snapshot,
                                   std::span<const device::SampleSpan> samples) noexcept {
  bool all = true;
  while (!tensors.empty()) {
    const size_t room = std::min(tensors.size(), size_t{device::kMeasuredMax});
    size_t count = 1;
    while (count < room && tensors[count].seen.gpu == tensors[0].seen.gpu) ++count;
    const size_t sampled = std::min(samples.size(), count);
    all &= EnqueueMeasured(thread, as, tensors.first(count), snapshot, samples.first(sampled));
    tensors = tensors.subspan(count);
    samples = samples.subspan(sampled);
  }
  return all;
}

bool GpuEventQueue::EnqueueMeasured(ThreadState* thread, CheckedAs as,
                                    std::span<const CheckedTensor> tensors, uint64_t snapshot,
                                    std::span<const device::SampleSpan> samples) noexcept {
  OpEvent* event = ReserveHanded(thread, as, tensors.size(), tensors.size());
  if (event == nullptr) return false;
  event->measures = true;
  event->snapshot = snapshot;
  event->samples = samples;
  const InputSeen* seen[device::kMeasuredMax];
  for (size_t i = 0; i < tensors.size(); ++i) {
    KeepHanded(tensors[i], &event->tensors[i]);
    seen[i] = &tensors[i].seen;
  }
  const bool launched = Launch(thread, event, seen, nullptr, 0);
  event->samples = {};
  state_.ring.Publish(event);
  return launched;
}

bool GpuEventQueue::Enqueue(ThreadState* thread, const SnapshotTaken& fact) noexcept {
  auto* event = state_.ring.Reserve<SnapshotEvent>();
  if (event == nullptr) return false;
  event->kind = EventKind::kSnapshot;
  event->moment = MomentOf(thread);
  event->snapshot = fact.snapshot;
  state_.ring.Publish(event);
  return true;
}

// What an op of a layer's forward has left, at level full, where each has a launch of its own.
void GpuEventQueue::MeasureWritten(ThreadState* thread, const Moment& moment,
                                   std::span<const InputSeen* const> written) noexcept {
  if (parts_.level.watched() != wire::Level::kFull || moment.place.layer == nullptr ||
      moment.place.phase != wire::Phase::kForward || moment.in_optimizer) {
    return;
  }
  CheckedTensor list[device::kOutputsMax];
  size_t count = 0;
  for (const InputSeen* tensor : written) {
    if (count == std::size(list)) break;
    if (!CanBeMeasured(tensor->View())) continue;
    list[count++] = {*tensor, wire::Target::kNone, nullptr, 0};
  }
  if (count == 0 || !parts_.parameter_stats.TakeLayerLaunch()) return;
  EnqueueFigures(thread, CheckedAs::kMeasuredResults, {list, count}, 0);
}

// What a module returns, at level sampled, on the way out of it.
void GpuEventQueue::MeasureResults(ThreadState* thread,
                                   std::span<const at::TensorBase* const> results) noexcept {
  GpuTensors on_gpu(*this, thread, /*counts=*/false);
  for (const at::TensorBase* result : results) {
    PlainTensor plain;
    wire::Unchecked reason;
    if (DescribeTensor(*result, &plain, &reason) == Readable::kYes && plain.gpu >= 0 &&
        CanBeMeasured(plain.view)) {
      on_gpu.Add(plain, wire::Target::kNone, nullptr);
    }
  }
  if (on_gpu.list().empty() || !parts_.parameter_stats.TakeLayerLaunch()) return;
  EnqueueFigures(thread, CheckedAs::kMeasuredResults, on_gpu.list(), 0);
}

}  // namespace nanwatch
