// SPDX-License-Identifier: Apache-2.0
// Tensors of a GPU that are measured one by one for a snapshot (figures/parameter_stats.h): as many
// as fit a launch (device/measure_launch.h) are one event, and behind all of a snapshot stands one
// that has it published. What was not launched, or was lost, is missing there.
#include <algorithm>

#include "shim/check/moments.h"
#include "shim/observe/figures/layer_peaks.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/gpu_counts.h"
#include "shim/observe/gpu/queued_events.h"
#include "shim/observe/observer.h"

namespace nanwatch {
namespace {

bool CanBeMeasured(const TensorView& view) {
  return view.numel > 0 && HasMoments(view.type) && IsOneRun(view, /*in_any_order=*/true);
}

}  // namespace

bool GpuEventQueue::MayMeasure(Observer& observer, const ThreadState* thread) noexcept {
  return gpu_.AllSetUp() && CapturedGraph(observer, thread, /*begins=*/true) == nullptr;
}

bool GpuEventQueue::EnqueueFigures(Observer& observer, ThreadState* thread, CheckedAs as,
                                   std::span<const CheckedTensor> tensors, uint64_t snapshot,
                                   std::span<const device::SampleSpan> samples) noexcept {
  bool all = true;
  while (!tensors.empty()) {
    const size_t room = std::min(tensors.size(), size_t{device::kMeasuredMax});
    size_t count = 1;
    while (count < room && tensors[count].seen.gpu == tensors[0].seen.gpu) ++count;
    const size_t sampled = std::min(samples.size(), count);
    all &= EnqueueMeasured(observer, thread, as, tensors.first(count), snapshot,
                           samples.first(sampled));
    tensors = tensors.subspan(count);
    samples = samples.subspan(sampled);
  }
  return all;
}

bool GpuEventQueue::EnqueueMeasured(Observer& observer, ThreadState* thread, CheckedAs as,
                                    std::span<const CheckedTensor> tensors, uint64_t snapshot,
                                    std::span<const device::SampleSpan> samples) noexcept {
  OpEvent* event = ReserveHanded(observer, thread, as, tensors.size(), 0);
  if (event == nullptr) return false;
  event->is_list = event->measures = true;
  event->snapshot = snapshot;
  event->samples = samples;
  const InputSeen* seen[device::kMeasuredMax];
  for (size_t i = 0; i < tensors.size(); ++i) {
    KeepHanded(tensors[i], &event->tensors[i]);
    seen[i] = &tensors[i].seen;
  }
  const bool launched = Launch(observer, thread, event, seen, nullptr, 0);
  event->samples = {};
  Publish(event);
  return launched;
}

bool GpuEventQueue::EnqueueSnapshot(Observer& observer, ThreadState* thread,
                                    uint64_t snapshot) noexcept {
  auto* event = Reserve<SnapshotEvent>();
  if (event == nullptr) return false;
  event->kind = EventKind::kSnapshot;
  event->moment = TakeMoment(observer.moment_parts(), thread);
  event->snapshot = snapshot;
  Publish(event);
  return true;
}

// What an op of a layer's forward has left, at level full, where each has a launch of its own.
void GpuEventQueue::MeasureWritten(Observer& observer, ThreadState* thread, const Moment& moment,
                                   std::span<const InputSeen* const> written) noexcept {
  if (observer.level.watched() != wire::Level::kFull || moment.place.layer == nullptr ||
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
  if (count == 0 || !observer.parameter_stats.TakeLayerLaunch()) return;
  EnqueueFigures(observer, thread, CheckedAs::kMeasuredResults, {list, count}, 0);
}

// What a module returns, at level layer, on the way out of it.
void GpuEventQueue::MeasureResults(Observer& observer, ThreadState* thread,
                                   std::span<const at::TensorBase* const> results) noexcept {
  GpuTensors on_gpu(observer.late_facts, thread, /*counts=*/false);
  for (const at::TensorBase* result : results) {
    PlainTensor plain;
    wire::Unchecked reason;
    if (DescribeTensor(*result, &plain, &reason) == Readable::kYes && plain.gpu >= 0 &&
        CanBeMeasured(plain.view)) {
      on_gpu.Add(plain, wire::Target::kNone, nullptr);
    }
  }
  if (on_gpu.list().empty() || !observer.parameter_stats.TakeLayerLaunch()) return;
  EnqueueFigures(observer, thread, CheckedAs::kMeasuredResults, on_gpu.list(), 0);
}

void GpuEventQueue::ResolveMeasures(Observer& observer, const OpEvent& event,
                                    const device::Measure* measures) noexcept {
  for (uint32_t i = 0; i < event.outputs; ++i) {
    const device::Measure& told = measures[i];
    const SeenTensor& tensor = event.tensors[i];
    const Layer* layer = event.moment.place.layer;
    switch (event.checked_as) {
      case CheckedAs::kMeasuredResults:
        if (layer == nullptr || !told.IsFinite()) break;
        LayerPeaks::RecordLargest(layer, tensor.seen.type, told.largest);
        break;
      case CheckedAs::kMeasuredUpdates:
        observer.parameter_stats.AddUpdate(event.snapshot, tensor.name, {told.sum, told.squares});
        break;
      case CheckedAs::kMeasuredGradients:
        observer.parameter_stats.AddGradient(event.snapshot, tensor.name,
                                             {told.sum, told.squares, told.largest, told.zeros});
        break;
      default:
        break;
    }
  }
}

}  // namespace nanwatch
