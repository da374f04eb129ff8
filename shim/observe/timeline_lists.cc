// Tensors that are handed over by the hundred, once a step: gradients, and what an update has
// written. One launch looks at device::kListMax of them (device/list_launch.h), one event holds
// them; what each is found to be is told as of any that is handed over.
#include <algorithm>
#include <new>
#include <vector>

#include "shim/observe/gpu_counts.h"
#include "shim/observe/observer.h"
#include "shim/observe/timeline.h"
#include "shim/observe/timeline_events.h"

namespace nanwatch {

// A list for each GPU, in the order in which these are met. What is no run of memory is looked at
// behind them, as ever.
void Timeline::NoteLists(Observer& observer, ThreadState* thread, HandedAs as,
                         std::span<const HandedTensor> tensors) noexcept try {
  std::vector<HandedTensor> scattered;
  std::vector<const HandedTensor*> left;
  left.reserve(tensors.size());
  for (const HandedTensor& tensor : tensors) {
    if (IsOneRun(tensor.seen.View(), /*in_any_order=*/true)) {
      left.push_back(&tensor);
    } else {
      scattered.push_back(tensor);
    }
  }
  while (!left.empty()) {
    const int8_t gpu = left.front()->seen.gpu;
    const auto others = std::stable_partition(
        left.begin(), left.end(), [gpu](const auto* tensor) { return tensor->seen.gpu == gpu; });
    std::span<const HandedTensor* const> list(left.data(),
                                              static_cast<size_t>(others - left.begin()));
    while (!list.empty()) {
      const size_t count = std::min(list.size(), size_t{device::kListMax});
      NoteList(observer, thread, as, list.first(count), /*is_last=*/count == list.size());
      list = list.subspan(count);
    }
    left.erase(left.begin(), others);
  }
  NoteHandedFew(observer, thread, as, scattered, {}, {});
} catch (const std::bad_alloc&) {
  thread->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)] += tensors.size();
}

void Timeline::NoteList(Observer& observer, ThreadState* thread, HandedAs as,
                        std::span<const HandedTensor* const> tensors, bool is_last) noexcept {
  OpEvent* event = ReserveHanded(observer, thread, as, tensors.size(), 0);
  if (event == nullptr) return;
  event->is_list = true;
  // Nothing of this step is launched behind what its update has written.
  event->reports = is_last && as == HandedAs::kWritten;
  const InputSeen* seen[device::kListMax];
  for (size_t i = 0; i < tensors.size(); ++i) {
    KeepHanded(*tensors[i], &event->tensors[i]);
    seen[i] = &tensors[i]->seen;
  }
  Launch(observer, thread, event, seen, nullptr, 0);
  TellCutsOfHanded(observer, thread, event, seen);
  Publish(event);
}

void Timeline::TellList(Observer& observer, OpEvent& event, const GpuAnswer& answer) noexcept {
  const device::ListResult list = device::ListOf(*answer.result);
  for (uint32_t i = 0; i < event.outputs; ++i) {
    const ListedEntry found = FindListed(list, i);
    if (found.kinds == 0) continue;
    SeenTensor& tensor = event.tensors[i];
    if (found.counted) {
      FillCounts(found.counts, found.kinds, list.brief != 0, &tensor.stats);
      PlaceToIndex(tensor.seen.View(), &tensor.stats);
    } else {
      FillKinds(found.kinds, &tensor.stats);
    }
    TellHandedTensor(observer, event, tensor);
  }
}

}  // namespace nanwatch
