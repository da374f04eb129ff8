// SPDX-License-Identifier: Apache-2.0
// Tensors that are handed over by the hundred, once a step: gradients, and what an update has
// written. One launch looks at device::kListMax of them (device/list_launch.h), one event holds
// them; what each is found to be is told as of any that is handed over.
#include <algorithm>
#include <new>
#include <vector>

#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/gpu_counts.h"
#include "shim/observe/gpu/queued_events.h"
#include "shim/observe/observer.h"
#include "shim/observe/thread/seen_inputs.h"

namespace nanwatch {

// A list for each GPU, in the order in which these are met. What is no run of memory is looked at
// behind them, as ever.
bool GpuEventQueue::EnqueueLists(Observer& observer, ThreadState* thread, CheckedAs as,
                                 std::span<const CheckedTensor> tensors) noexcept try {
  // A replay would ask at another time.
  if (as == CheckedAs::kProbe && CapturedGraph(observer, thread, /*begins=*/true) != nullptr) {
    return false;
  }
  // The figures of what is captured nobody could ask for.
  if (IsForFigures(as) && CapturedGraph(observer, thread, /*begins=*/false) != nullptr) return true;
  bool all = true;
  std::vector<CheckedTensor> scattered;
  std::vector<const CheckedTensor*> left;
  left.reserve(tensors.size());
  for (const CheckedTensor& tensor : tensors) {
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
    std::span<const CheckedTensor* const> list(left.data(),
                                               static_cast<size_t>(others - left.begin()));
    while (!list.empty()) {
      const size_t count = std::min(list.size(), size_t{device::kListMax});
      all &= EnqueueList(observer, thread, as, list.first(count), /*is_last=*/count == list.size());
      list = list.subspan(count);
    }
    left.erase(left.begin(), others);
  }
  return EnqueueFewTensors(observer, thread, as, scattered, {}, {}) && all;
} catch (const std::bad_alloc&) {
  thread->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)] += tensors.size();
  return false;
}

bool GpuEventQueue::EnqueueList(Observer& observer, ThreadState* thread, CheckedAs as,
                                std::span<const CheckedTensor* const> tensors,
                                bool is_last) noexcept {
  OpEvent* event = ReserveHanded(observer, thread, as, tensors.size(), 0);
  if (event == nullptr) return false;
  event->is_list = true;
  event->sums = !IsOnlyChecked(as);
  // Nothing of this step is launched behind what its update has written, and a pass begins at a
  // loss, where the stream would be asked.
  event->reports =
      is_last && (as == CheckedAs::kWritten || as == CheckedAs::kLoss || as == CheckedAs::kProbe);
  const InputSeen* seen[device::kListMax];
  for (size_t i = 0; i < tensors.size(); ++i) {
    KeepHanded(*tensors[i], &event->tensors[i]);
    seen[i] = &tensors[i]->seen;
  }
  const bool launched = Launch(observer, thread, event, seen, nullptr, 0);
  if (!IsForFigures(as)) ResolveCutsOfTensors(observer, thread, event, seen);
  Publish(event);
  return launched;
}

void GpuEventQueue::EnqueueNumber(Observer& observer, ThreadState* thread, CheckedAs as,
                                  const InputSeen& scalar) noexcept {
  const CheckedTensor handed = {scalar, wire::Target::kNone, nullptr, 0};
  EnqueueLists(observer, thread, as, {&handed, 1});
}

void GpuEventQueue::RememberScalar(ThreadState* thread, const Frame& frame,
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
void GpuEventQueue::EnqueueLossOf(Observer& observer, ThreadState* thread,
                                  const SequenceEntry* root) noexcept {
  if (root == nullptr) return;
  const std::lock_guard<std::mutex> lock(scalar_mutex_);
  if (scalar_of_.Get() != root || !IsAlive(scalar_)) return;
  EnqueueNumber(observer, thread, CheckedAs::kLossNumber, scalar_);
}

// Told before the op is.
void GpuEventQueue::EnqueueScale(Observer& observer, ThreadState* thread,
                                 const Frame& frame) noexcept {
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (input.argument != 0 || input.gpu < 0 || input.numel != 1) continue;
    return EnqueueNumber(observer, thread, CheckedAs::kScale, input);
  }
}

void GpuEventQueue::ResolveSums(Observer& observer, const OpEvent& event,
                                const device::ListSums& sums) noexcept {
  switch (event.checked_as) {
    case CheckedAs::kLoss:
    case CheckedAs::kLossNumber:
      return observer.losses.Record(sums.first);
    case CheckedAs::kScale:
      scale_ = sums.first;
      scale_known_ = true;
      return;
    case CheckedAs::kGradientScale:
      return gpu_gradients_->SetScale(sums.first);
    case CheckedAs::kFoundInf:
      skips_update_ = sums.first != 0;
      return;
    case CheckedAs::kScaleOfStep:
      return observer.steps.OnScaleUpdate(
          resolver_, {sums.first, /*known=*/true, /*found_inf=*/!sums.IsZero(1)});
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

void GpuEventQueue::ResolveList(Observer& observer, OpEvent& event,
                                const GpuAnswer& answer) noexcept {
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
    ResolveTensor(observer, event, tensor);
  }
}

}  // namespace nanwatch
