// SPDX-License-Identifier: Apache-2.0
// Tensors that no op of this moment hands over are enqueued: a few, each with a check of its own, or
// by the hundred, once a step: gradients, and what an update has written. One launch checks
// device::kListMax of these (device/list_launch.h), and one event holds them.
#include <algorithm>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/gpu_counts.h"
#include "shim/observe/gpu/gpu_graphs.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {
namespace {

bool IsRun(const CheckedTensor& tensor) {
  return IsOneRun(tensor.seen.View(), /*in_any_order=*/true);
}

// Those that the fact hands over, and behind them lists of its other runs.
std::vector<TensorListPtr> ListsOf(const TensorsToCheck& fact) {
  std::vector<TensorListPtr> others;
  for (const CheckedTensor& tensor : fact.tensors) {
    if (!IsRun(tensor)) continue;
    ListWithRoom(&others, tensor.seen.gpu, fact.tensors.size())
        .Add(tensor.seen.Plain(), tensor.target, tensor.named, tensor.name);
  }
  std::vector<TensorListPtr> lists(fact.runs.begin(), fact.runs.end());
  std::move(others.begin(), others.end(), std::back_inserter(lists));
  return lists;
}

}  // namespace

bool GpuEventQueue::EnqueueTensors(ThreadState* thread, CheckedAs as,
                                   std::span<const CheckedTensor> tensors, const RegionSeen& region,
                                   std::span<const CheckedTensor> given) noexcept {
  LaunchBatches();
  return EnqueueFewTensors(thread, as, tensors, region, given);
}

bool GpuEventQueue::EnqueueFewTensors(ThreadState* thread, CheckedAs as,
                                      std::span<const CheckedTensor> tensors,
                                      const RegionSeen& region,
                                      std::span<const CheckedTensor> given) noexcept {
  constexpr size_t kGivenMax = 32;
  given = given.first(std::min(given.size(), kGivenMax));
  bool all = true;
  while (!tensors.empty()) {
    const size_t room = std::min(tensors.size(), size_t{device::kOutputsMax});
    size_t count = 1;
    while (count < room && tensors[count].seen.gpu == tensors[0].seen.gpu) ++count;
    all &= EnqueuePartOfTensors(thread, as, tensors.first(count), region, given);
    tensors = tensors.subspan(count);
  }
  return all;
}

OpEvent* GpuEventQueue::ReserveHanded(ThreadState* thread, CheckedAs as, size_t outputs,
                                      size_t held) noexcept {
  auto* event = state_.ring.Reserve<OpEvent>((std::max<size_t>(held, 1) - 1) * sizeof(SeenTensor));
  if (event == nullptr) {
    if (!IsForFigures(as)) {
      thread->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)] += outputs;
    }
    return nullptr;
  }
  event->kind = EventKind::kHanded;
  event->checked_as = as;
  event->region = {};
  event->moment = MomentOf(thread);
  event->outputs = static_cast<uint32_t>(outputs);
  event->inputs = 0;
  return event;
}

// All on one GPU, as many as fit into one launch.
bool GpuEventQueue::EnqueuePartOfTensors(ThreadState* thread, CheckedAs as,
                                         std::span<const CheckedTensor> tensors,
                                         const RegionSeen& region,
                                         std::span<const CheckedTensor> given) noexcept {
  OpEvent* event = ReserveHanded(thread, as, tensors.size(), tensors.size() + given.size());
  if (event == nullptr) return false;
  event->inputs = static_cast<uint32_t>(given.size());
  event->region = region;
  const InputSeen* outputs[device::kOutputsMax];
  const InputSeen* inputs[device::kInputsMax];
  uint32_t looked_at = 0;
  SeenTensor* kept = event->tensors;
  for (size_t i = 0; i < tensors.size(); ++i, ++kept) {
    KeepHanded(tensors[i], kept);
    outputs[i] = &tensors[i].seen;
  }
  for (const CheckedTensor& input : given) {
    KeepHanded(input, kept);
    if (looked_at < device::kInputsMax && input.seen.gpu == tensors[0].seen.gpu) {
      kept->looked_at = static_cast<int8_t>(looked_at);
      inputs[looked_at++] = &input.seen;
    }
    ++kept;
  }
  const bool launched = Launch(thread, event, outputs, inputs, looked_at);
  state_.ring.Publish(event);
  return launched;
}

bool GpuEventQueue::Enqueue(ThreadState* thread, const TensorsToCheck& fact) noexcept {
  LaunchBatches();
  return EnqueueLists(thread, fact);
}

// What is no run of memory is checked behind the lists.
bool GpuEventQueue::EnqueueLists(ThreadState* thread, const TensorsToCheck& fact) noexcept try {
  // A replay would ask at another time.
  if (fact.as == CheckedAs::kProbe && CapturedGraph(thread, /*begins=*/true) != nullptr) {
    return false;
  }
  // The figures of what is captured nobody could ask for.
  if (IsForFigures(fact.as) && CapturedGraph(thread, /*begins=*/false) != nullptr) return true;
  const std::vector<TensorListPtr> lists = ListsOf(fact);
  std::vector<CheckedTensor> scattered;
  std::copy_if(fact.tensors.begin(), fact.tensors.end(), std::back_inserter(scattered),
               [](const CheckedTensor& tensor) { return !IsRun(tensor); });
  bool all = true;
  for (auto list = lists.begin(); list != lists.end(); ++list) {
    const bool is_last = std::none_of(std::next(list), lists.end(), [list](const auto& later) {
      return later->gpu() == (*list)->gpu();
    });
    all &= EnqueueList(thread, fact.as, *list, is_last);
  }
  return EnqueueFewTensors(thread, fact.as, scattered, {}, {}) && all;
} catch (const std::bad_alloc&) {
  if (IsForFigures(fact.as)) return false;
  size_t count = fact.tensors.size();
  for (const TensorListPtr& list : fact.runs) count += list->size();
  thread->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)] += count;
  return false;
}

// `is_last`: of those on its GPU.
bool GpuEventQueue::EnqueueList(ThreadState* thread, CheckedAs as, TensorListPtr list,
                                bool is_last) noexcept {
  OpEvent* event = ReserveHanded(thread, as, list->size(), 0);
  if (event == nullptr) return false;
  event->sums = !IsOnlyChecked(as);
  // Nothing of this step is launched behind what its update has written, and a pass begins at a
  // loss, where the stream would be asked.
  event->reports =
      is_last && (as == CheckedAs::kWritten || as == CheckedAs::kLoss || as == CheckedAs::kProbe);
  event->list = list.release();
  const bool launched = LaunchList(thread, event);
  state_.ring.Publish(event);
  return launched;
}

// Buffers and frozen parameters that were there before the GPU was set up, above all: no update
// writes them.
void GpuEventQueue::CheckUnread(ThreadState* thread) noexcept {
  if (!state_.batches.AnyUnread() || thread->last_gpu == 0 ||
      CapturedGraph(thread, /*begins=*/true) != nullptr) {
    return;
  }
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> held;
  const auto gpu = static_cast<int8_t>(thread->last_gpu - 1);
  if (TensorListPtr list = state_.batches.TakeUnread(gpu, &held); list) {
    (void)EnqueueList(thread, CheckedAs::kUnread, std::move(list), /*is_last=*/false);
  }
}

void GpuEventQueue::EnqueueNumber(ThreadState* thread, CheckedAs as,
                                  const InputSeen& scalar) noexcept {
  const CheckedTensor handed = {scalar, wire::Target::kNone, nullptr, 0};
  EnqueueLists(thread, {as, {&handed, 1}});
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
void GpuEventQueue::EnqueueLossOf(ThreadState* thread, const SequenceEntry* root) noexcept {
  if (root == nullptr) return;
  const std::lock_guard<std::mutex> lock(scalar_mutex_);
  if (scalar_of_.Get() != root || !IsAlive(scalar_)) return;
  EnqueueNumber(thread, CheckedAs::kLossNumber, scalar_);
}

// Told before the op is.
void GpuEventQueue::EnqueueScale(ThreadState* thread, const Frame& frame,
                                 const InputSeen& written) noexcept {
  // At level sampled nobody has asked for inputs: the op returns the scale that it has written.
  if (!frame.inputs_seen && written.numel == 1) {
    return EnqueueNumber(thread, CheckedAs::kScale, written);
  }
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (input.argument != 0 || input.gpu < 0 || input.numel != 1) continue;
    return EnqueueNumber(thread, CheckedAs::kScale, input);
  }
}

}  // namespace nanwatch
