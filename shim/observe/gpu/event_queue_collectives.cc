// SPDX-License-Identifier: Apache-2.0
// Collectives are enqueued: what was given in is known when they are resolved, what came back when
// somebody meets it (gpu_collective_results.h).
#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "shim/observe/events/level_state.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/gpu_graphs.h"
#include "shim/observe/python/names/layer_table.h"
#include "shim/observe/torch/input_tracking.h"

namespace nanwatch {

void GpuEventQueue::Enqueue(ThreadState* thread, const CollectiveTensors& fact) noexcept {
  // In a graph it runs at every replay, and would have to be noted there.
  if (CapturedGraph(thread, /*begins=*/true) != nullptr) return;
  LaunchBatches();
  HoldForCollectives();
  const Layer* layer = CurrentLayer();
  std::span<const CheckedTensor> tensors = fact.tensors;
  while (!tensors.empty()) {
    const size_t count = std::min(tensors.size(), size_t{OpEvent::kTensorsMax});
    auto* event = state_.ring.Reserve<CollectiveEvent>((count - 1) * sizeof(SeenTensor));
    if (event == nullptr) return;
    event->kind = EventKind::kCollective;
    event->moment = MomentOf(thread);
    event->collective = fact.collective;
    event->given_in = fact.given_in;
    event->count = static_cast<uint32_t>(count);
    for (size_t i = 0; i < count; ++i) {
      const InputSeen& seen = tensors[i].seen;
      KeepHanded(tensors[i], &event->tensors[i]);
      state_.collective_results.Record(seen, fact.collective, layer, event->number, fact.given_in);
    }
    state_.ring.Publish(event);
    tensors = tensors.subspan(count);
  }
}

void GpuEventQueue::HoldForCollectives() noexcept {
  if (parts_.level.watched() != wire::Level::kSampled || holds_for_collectives_.exchange(true)) {
    return;
  }
  parts_.input_tracking.Hold();
}

void GpuEventQueue::ReleaseAfterUpdate() noexcept {
  if (!holds_for_collectives_.load(std::memory_order_relaxed)) return;
  if (!holds_for_collectives_.exchange(false)) return;
  parts_.input_tracking.Release();
  if (parts_.bad_values.transient() == 0) parts_.input_tracking.Disarm();
}

template <class Fn>
void GpuEventQueue::CheckInputs(ThreadState* thread, const Frame& frame, CheckedAs as,
                                Fn&& wanted) noexcept try {
  std::vector<CheckedTensor> tensors;
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (input.gpu >= 0 && wanted(input)) {
      tensors.push_back({input, wire::Target::kNone, nullptr, 0});
    }
  }
  // Asking the driver about the stream comes last: it is nearly always for nothing.
  if (tensors.empty() || parts_.poison.Ignores() ||
      CapturedGraph(thread, /*begins=*/true) != nullptr) {
    return;
  }
  EnqueueLists(thread, {as, tensors});
} catch (const std::bad_alloc&) {
}

void GpuEventQueue::CheckGiven(ThreadState* thread, const Frame& frame) noexcept {
  if (std::strstr(frame.op->name, "broadcast") == nullptr) return;
  CheckInputs(thread, frame, CheckedAs::kGiven, [](const InputSeen&) { return true; });
}

void GpuEventQueue::CheckReceived(ThreadState* thread, const Frame& frame) noexcept {
  CheckInputs(thread, frame, CheckedAs::kReceived, [this](const InputSeen& input) {
    return input.updated && state_.collective_results.TakeUnlooked(input);
  });
}

}  // namespace nanwatch
