// Tensors that are handed over by the hundred, once a step: gradients, and what an update has
// written. One launch looks at device::kListMax of them (device/list_launch.h), one event holds
// them; what each is found to be is told as of any that is handed over.
#include <algorithm>
#include <new>
#include <vector>

#include "shim/observe/gpu/gpu_counts.h"
#include "shim/observe/gpu/timeline.h"
#include "shim/observe/gpu/timeline_events.h"
#include "shim/observe/observer.h"
#include "shim/observe/op/inputs.h"

namespace nanwatch {

// A list for each GPU, in the order in which these are met. What is no run of memory is looked at
// behind them, as ever.
bool Timeline::NoteLists(Observer& observer, ThreadState* thread, HandedAs as,
                         std::span<const HandedTensor> tensors) noexcept try {
  // A replay would ask at another time.
  if (as == HandedAs::kProbe && CapturedGraph(observer, thread, /*begins=*/true) != nullptr) {
    return false;
  }
  // The figures of what is captured nobody could ask for.
  if (IsForFigures(as) && CapturedGraph(observer, thread, /*begins=*/false) != nullptr) return true;
  bool all = true;
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
      all &= NoteList(observer, thread, as, list.first(count), /*is_last=*/count == list.size());
      list = list.subspan(count);
    }
    left.erase(left.begin(), others);
  }
  return NoteHandedFew(observer, thread, as, scattered, {}, {}) && all;
} catch (const std::bad_alloc&) {
  thread->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)] += tensors.size();
  return false;
}

bool Timeline::NoteList(Observer& observer, ThreadState* thread, HandedAs as,
                        std::span<const HandedTensor* const> tensors, bool is_last) noexcept {
  OpEvent* event = ReserveHanded(observer, thread, as, tensors.size(), 0);
  if (event == nullptr) return false;
  event->is_list = true;
  event->sums = !IsOnlyChecked(as);
  // Nothing of this step is launched behind what its update has written, and a pass begins at a
  // loss, where the stream would be asked.
  event->reports =
      is_last && (as == HandedAs::kWritten || as == HandedAs::kLoss || as == HandedAs::kProbe);
  const InputSeen* seen[device::kListMax];
  for (size_t i = 0; i < tensors.size(); ++i) {
    KeepHanded(*tensors[i], &event->tensors[i]);
    seen[i] = &tensors[i]->seen;
  }
  const bool launched = Launch(observer, thread, event, seen, nullptr, 0);
  if (!IsForFigures(as)) TellCutsOfHanded(observer, thread, event, seen);
  Publish(event);
  return launched;
}

void Timeline::NoteNumber(Observer& observer, ThreadState* thread, HandedAs as,
                          const InputSeen& scalar) noexcept {
  const HandedTensor handed = {scalar, wire::Target::kNone, nullptr, 0};
  NoteLists(observer, thread, as, {&handed, 1});
}

void Timeline::RememberScalar(ThreadState* thread, const Frame& frame,
                              const InputSeen& output) noexcept {
  if (frame.sequence < 0 || !output.requires_grad) return;
  const std::lock_guard<std::mutex> lock(scalar_mutex_);
  TorchWeakStorageOps().drop(scalar_.storage.handle);
  scalar_ = output;
  scalar_.counted = nullptr;
  scalar_.storage = HoldWeakly(static_cast<const c10::StorageImpl*>(output.storage.storage));
  scalar_of_ = SequenceRef(&thread->sequences[frame.sequence & (ThreadState::kSequences - 1)]);
}

// The loss is what the pass begins at; whoever began it holds it.
void Timeline::NoteLossOf(Observer& observer, ThreadState* thread,
                          const SequenceEntry* root) noexcept {
  if (root == nullptr) return;
  const std::lock_guard<std::mutex> lock(scalar_mutex_);
  if (scalar_of_.Get() != root || !IsAlive(scalar_)) return;
  NoteNumber(observer, thread, HandedAs::kLossNumber, scalar_);
}

// Told before the op is.
void Timeline::NoteScale(Observer& observer, ThreadState* thread, const Frame& frame) noexcept {
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (input.argument != 0 || input.gpu < 0 || input.numel != 1) continue;
    return NoteNumber(observer, thread, HandedAs::kScale, input);
  }
}

void Timeline::TellSums(Observer& observer, const OpEvent& event,
                        const device::ListSums& sums) noexcept {
  switch (event.handed_as) {
    case HandedAs::kLoss:
    case HandedAs::kLossNumber:
      return observer.steps.NoteLoss(sums.first);
    case HandedAs::kScale:
      scale_ = sums.first;
      scale_known_ = true;
      return;
    case HandedAs::kGradientScale:
      return gpu_gradients_->SetScale(sums.first);
    case HandedAs::kFoundInf:
      skips_update_ = sums.first != 0;
      return;
    case HandedAs::kScaleOfStep:
      observer.steps.OnUnscale(!sums.IsZero(1));
      return observer.steps.OnScaleUpdate(observer, teller_, {sums.first, /*known=*/true});
    default:
      break;
  }
  uint32_t summed = 0;
  uint32_t zero = 0;
  for (uint32_t i = 0; i < event.outputs; ++i) {
    summed += device::IsSummed(static_cast<uint8_t>(event.tensors[i].seen.type));
    zero += sums.IsZero(i);
  }
  gpu_gradients_->AddSums(sums.squares, summed, zero);
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
