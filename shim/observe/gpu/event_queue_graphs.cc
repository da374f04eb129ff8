// SPDX-License-Identifier: Apache-2.0
// Captures and replays of CUDA graphs are enqueued (gpu_graphs.h).
#include <new>

#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/gpu_graphs.h"
#include "shim/observe/python/python_bridge.h"

namespace nanwatch {

GpuGraph* GpuEventQueue::CapturedGraph(const ThreadState* thread, bool begins) noexcept {
  if (!begins && state_.captures.load(std::memory_order_relaxed) == nullptr) return nullptr;
  const GpuChecks::Graph place = state_.checks.CapturedInto(thread);
  if (place.number == 0) return nullptr;
  state_.captures.store(thread, std::memory_order_relaxed);
  parts_.python.ReplaceGraphCallsSoon();
  return FindGraph(place);
}

// Made where it was not there; null: no memory.
GpuGraph* GpuEventQueue::FindGraph(GpuChecks::Graph place) noexcept try {
  const std::lock_guard<std::mutex> lock(state_.graphs->mutex);
  GpuGraph*& graph = state_.graphs->by_key[place.key()];
  if (graph == nullptr) {
    graph = new GpuGraph;
    graph->place = place;
  }
  return graph;
} catch (const std::bad_alloc&) {
  return nullptr;
}

void GpuEventQueue::OnGraphCall(ThreadState* thread, const void* object, GraphCall call) noexcept
    try {
  GpuGraph* graph = nullptr;
  if (call == GraphCall::kCaptureEnds) {
    // What was recorded meanwhile was only captured.
    state_.batches.DropAll();
    graph = CapturedGraph(thread, /*begins=*/false);
    state_.captures.store(nullptr, std::memory_order_relaxed);
    const std::lock_guard<std::mutex> lock(state_.graphs->mutex);
    // Objects come back under the same address.
    state_.graphs->by_object.erase(object);
    if (graph == nullptr) return;
    state_.graphs->by_object.emplace(object, graph);
    graph->announced = true;
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(state_.graphs->mutex);
    const auto found = state_.graphs->by_object.find(object);
    if (found == state_.graphs->by_object.end()) return;
    graph = found->second;
    if (call == GraphCall::kReplayBegins) ++graph->begun;
    if (call == GraphCall::kReplayFailed) --graph->begun;
    if (call != GraphCall::kReplayed) return;
    ++graph->launched;
  }
  EnqueueReplay(thread, graph);
} catch (const std::bad_alloc&) {
}

void GpuEventQueue::EnqueueReplay(ThreadState* thread, GpuGraph* graph) noexcept {
  LaunchBatches();
  // The mark first: an event without one has no end.
  const uint64_t mark = state_.checks.Mark(graph->place.gpu);
  auto* event = mark != 0 ? state_.ring.Reserve<ReplayEvent>() : nullptr;
  if (event == nullptr) {
    ++thread->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)];
    return Settle();
  }
  event->kind = EventKind::kReplay;
  event->graph = graph;
  event->ticket = mark;
  event->moment = MomentOf(thread);
  event->through = graph->launched;  // with the GIL held
  state_.ring.Publish(event);
  Settle();
}

}  // namespace nanwatch
