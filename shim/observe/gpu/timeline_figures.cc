// Tensors of a GPU that are measured one by one for a snapshot (figures/parameter_stats.h): as many
// as fit a launch (device/measure_launch.h) are one event, and behind all of a snapshot stands one
// that has it published. What was not launched, or was lost, is missing there.
#include <algorithm>

#include "shim/check/moments.h"
#include "shim/observe/gpu/timeline.h"
#include "shim/observe/gpu/timeline_events.h"
#include "shim/observe/observer.h"

namespace nanwatch {

bool Timeline::MayMeasure(Observer& observer, const ThreadState* thread) noexcept {
  return gpu_.AllSetUp() && CapturedGraph(observer, thread, /*begins=*/true) == nullptr;
}

void Timeline::NoteFigures(Observer& observer, ThreadState* thread, HandedAs as,
                           std::span<const HandedTensor> tensors, uint64_t snapshot) noexcept {
  while (!tensors.empty()) {
    const size_t room = std::min(tensors.size(), size_t{device::kMeasuredMax});
    size_t count = 1;
    while (count < room && tensors[count].seen.gpu == tensors[0].seen.gpu) ++count;
    NoteMeasured(observer, thread, as, tensors.first(count), snapshot);
    tensors = tensors.subspan(count);
  }
}

void Timeline::NoteMeasured(Observer& observer, ThreadState* thread, HandedAs as,
                            std::span<const HandedTensor> tensors, uint64_t snapshot) noexcept {
  OpEvent* event = ReserveHanded(observer, thread, as, tensors.size(), 0);
  if (event == nullptr) return;
  event->is_list = event->measures = true;
  event->snapshot = snapshot;
  const InputSeen* seen[device::kMeasuredMax];
  for (size_t i = 0; i < tensors.size(); ++i) {
    KeepHanded(tensors[i], &event->tensors[i]);
    seen[i] = &tensors[i].seen;
  }
  (void)Launch(observer, thread, event, seen, nullptr, 0);
  Publish(event);
}

bool Timeline::NoteSnapshot(Observer& observer, ThreadState* thread, uint64_t snapshot) noexcept {
  auto* event = Reserve<SnapshotEvent>();
  if (event == nullptr) return false;
  event->kind = EventKind::kSnapshot;
  event->moment = TakeMoment(observer, thread);
  event->snapshot = snapshot;
  Publish(event);
  return true;
}

void Timeline::TellMeasures(Observer& observer, const OpEvent& event,
                            const device::Measure* measures) noexcept {
  for (uint32_t i = 0; i < event.outputs; ++i) {
    const device::Measure& told = measures[i];
    const Moments moments = {told.sum, told.squares, told.largest, told.zeros};
    observer.parameter_stats.TellGradient(event.snapshot, event.tensors[i].name, moments);
  }
}

}  // namespace nanwatch
