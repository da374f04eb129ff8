// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/event_queue_graphs.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "shim/host/monotonic_clock.h"
#include "shim/observe/observer.h"
#include "shim/observe/thread/seen_inputs.h"

namespace nanwatch {
namespace {

// The tensors that an event holds, `fn` called for each.
template <class Op, class View, class Leaf, class Event, class Fn>
void ForEachTensor(Event* event, Fn&& fn) {
  switch (event->kind) {
    case EventKind::kOp:
    case EventKind::kHanded: {
      auto* op = static_cast<Op*>(event);
      for (uint32_t i = 0; i < op->outputs + op->inputs; ++i) fn(op->tensors[i]);
      return;
    }
    case EventKind::kView:
      return fn(static_cast<View*>(event)->tensor);
    case EventKind::kLeaf:
      if (static_cast<Leaf*>(event)->has_gradient) fn(static_cast<Leaf*>(event)->gradient);
      return;
    default:
      return;
  }
}

// For any event: none has a stricter alignment than an op's.
template <class Op>
void* Allocate(size_t bytes) {
  return std::aligned_alloc(alignof(Op), (bytes + alignof(Op) - 1) / alignof(Op) * alignof(Op));
}

// In the place of a replay's number: whatever has been found so far.
constexpr uint64_t kUnannounced = UINT64_MAX;

bool IsUpdate(EventKind kind) {
  return kind == EventKind::kOptimizerBegin || kind == EventKind::kOptimizerEnd ||
         kind == EventKind::kPlainUpdate;
}

bool IsResolvedAtEveryReplay(EventKind kind) {
  return kind != EventKind::kOp && kind != EventKind::kHanded && kind != EventKind::kView;
}

}  // namespace

// ---- noting

GpuEventQueue::Graph* GpuEventQueue::CapturedGraph(Observer& observer, const ThreadState* thread,
                                                   bool begins) noexcept {
  if (!begins && captures_.load(std::memory_order_relaxed) == nullptr) return nullptr;
  const GpuChecks::Graph place = gpu_.CapturedInto(thread);
  if (place.number == 0) return nullptr;
  captures_.store(thread, std::memory_order_relaxed);
  observer.python->ReplaceGraphCallsSoon();
  return FindGraph(place);
}

// Made where it was not there; null: no memory.
GpuEventQueue::Graph* GpuEventQueue::FindGraph(GpuChecks::Graph place) noexcept try {
  const std::lock_guard<std::mutex> lock(graphs_->mutex);
  Graph*& graph = graphs_->by_key[place.key()];
  if (graph == nullptr) {
    graph = new Graph;
    graph->place = place;
  }
  return graph;
} catch (const std::bad_alloc&) {
  return nullptr;
}

void GpuEventQueue::OnGraphCall(Observer& observer, ThreadState* thread, const void* object,
                                GraphCall call) noexcept try {
  Graph* graph = nullptr;
  if (call == GraphCall::kCaptureEnds) {
    graph = CapturedGraph(observer, thread, /*begins=*/false);
    captures_.store(nullptr, std::memory_order_relaxed);
    const std::lock_guard<std::mutex> lock(graphs_->mutex);
    // Objects come back under the same address.
    graphs_->by_object.erase(object);
    if (graph == nullptr) return;
    graphs_->by_object.emplace(object, graph);
    graph->announced = true;
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(graphs_->mutex);
    const auto found = graphs_->by_object.find(object);
    if (found == graphs_->by_object.end()) return;
    graph = found->second;
    if (call == GraphCall::kReplayBegins) ++graph->begun;
    if (call == GraphCall::kReplayFailed) --graph->begun;
    if (call != GraphCall::kReplayed) return;
    ++graph->launched;
  }
  EnqueueReplay(observer, thread, graph);
} catch (const std::bad_alloc&) {
}

void GpuEventQueue::EnqueueReplay(Observer& observer, ThreadState* thread, Graph* graph) noexcept {
  // What the graph writes is in none of the lists for cuts.
  if (cuts_.AnyNoted()) cuts_.LetGo();
  // The mark first: an event without one has no end.
  const uint64_t mark = gpu_.Mark(graph->place.gpu);
  auto* event = mark != 0 ? Reserve<ReplayEvent>() : nullptr;
  if (event == nullptr) {
    ++thread->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)];
    return Settle(observer);
  }
  event->kind = EventKind::kReplay;
  event->graph = graph;
  event->ticket = mark;
  event->moment = TakeMoment(observer.moment_parts(), thread);
  event->through = graph->launched;  // with the GIL held
  Publish(event);
  Settle(observer);
}

// ---- the list of a graph

void GpuEventQueue::KeepForReplays(Event* event) noexcept try {
  if (event->kind == EventKind::kNothing) return;
  Graph* graph = event->graph;
  Event* kept = MoveToGraph(event);
  if (kept == nullptr) {
    const bool checked = event->ticket != 0;
    resolver_->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)] +=
        checked ? static_cast<OpEvent*>(event)->outputs : 0;
    return Drop(event);
  }
  GiveOwnNode(graph, kept);
  graph->events.push_back(kept);
  if (kept->ticket != 0) {
    graph->checks.push_back({static_cast<OpEvent*>(kept)->slot, static_cast<OpEvent*>(kept)});
    graphs_->by_ticket.emplace(kept->ticket, graph);
  } else if (IsResolvedAtEveryReplay(kept->kind)) {
    // A replay numbers its passes, and must not allocate for that.
    graph->passes.reserve(graph->others.size() + 1);
    graph->others.push_back(kept);
  }
} catch (const std::bad_alloc&) {
}

GpuEventQueue::Event* GpuEventQueue::MoveToGraph(Event* event) noexcept {
  if (graphs_->bytes + event->bytes > Graphs::kBytesMax) return nullptr;
  void* memory = Allocate<OpEvent>(event->bytes);
  if (memory == nullptr) return nullptr;
  graphs_->bytes += event->bytes;
  // What it holds of tensors moves with it.
  std::memcpy(memory, static_cast<const void*>(event), event->bytes);
  return static_cast<Event*>(memory);
}

// Threads write over what their sequence numbers stand for; a graph's ops and passes go on to mean
// what they meant at the capture.
void GpuEventQueue::GiveOwnNode(Graph* graph, Event* event) noexcept try {
  const auto own = [this](SequenceRef* ref) {
    const auto found = graphs_->nodes.find({ref->entry, ref->sequence_plus_one});
    if (found != graphs_->nodes.end()) ref->entry = found->second;
  };
  if (event->kind == EventKind::kPass) own(&static_cast<PassEvent*>(event)->root);
  own(&event->moment.node_made_by);
  const Frame* frame = event->kind == EventKind::kOp     ? &static_cast<OpEvent*>(event)->frame
                       : event->kind == EventKind::kView ? &static_cast<ViewEvent*>(event)->frame
                                                         : nullptr;
  if (frame == nullptr || frame->sequence < 0 || event->moment.thread == nullptr) return;
  const SequenceEntry* entry =
      &event->moment.thread->sequences[frame->sequence & (ThreadState::kSequences - 1)];
  SequenceEntry*& node = graphs_->nodes[{entry, frame->sequence + 1}];
  if (node == nullptr) {
    node = &graph->nodes.emplace_back();
    node->sequence.store(frame->sequence + 1, std::memory_order_relaxed);
    const bool is_there = entry->sequence.load(std::memory_order_relaxed) == frame->sequence + 1;
    node->layer = is_there ? entry->layer : event->moment.place.layer;
    node->op = is_there ? entry->op : frame->op;
    node->value = {};
    node->site = 0;
  }
  event->moment.own_node = node;
} catch (const std::bad_alloc&) {
}

// ---- telling

// Whoever is told may write to what it is told of, and hold on to nothing.
GpuEventQueue::Event* GpuEventQueue::CopyOf(const Event& noted,
                                            const ReplayEvent& replay) noexcept {
  if (graphs_->copy == nullptr) {
    constexpr size_t kTensors = std::max(size_t{OpEvent::kTensorsMax}, size_t{device::kListMax});
    graphs_->copy = Allocate<OpEvent>(sizeof(OpEvent) + kTensors * sizeof(SeenTensor));
  }
  if (graphs_->copy == nullptr) return nullptr;
  auto* copy = static_cast<Event*>(
      std::memcpy(graphs_->copy, static_cast<const void*>(&noted), noted.bytes));
  const WeakStorageOps ops = TorchWeakStorageOps();
  ForEachTensor<OpEvent, ViewEvent, LeafEvent>(copy, [&ops](SeenTensor& tensor) {
    // Another tensor may be at its address by now; its storage's is never used again.
    if (ops.expired(tensor.seen.storage.handle)) tensor.seen.impl = nullptr;
  });
  copy->moment.time_ns = replay.moment.time_ns;
  if (copy->moment.place.pass == 0) return copy;
  if (replay.moment.place.pass != 0) {
    copy->moment.place.pass = replay.moment.place.pass;
    return copy;
  }
  std::vector<Graph::PassNumber>& passes = replay.graph->passes;
  const auto number = std::find_if(passes.begin(), passes.end(), [copy](const auto& pass) {
    return pass.at_capture == copy->moment.place.pass;
  });
  if (number != passes.end()) copy->moment.place.pass = number->at_replay;
  return copy;
}

void GpuEventQueue::ResolveReplay(Observer& observer, ReplayEvent& replay) noexcept {
  Graph& graph = *replay.graph;
  const uint64_t after = graph.told;
  GpuAnswer answer;
  bool found = false;
  bool used = false;
  for (const Graph::Check& check : graph.checks) {
    found |= gpu_.FindReplayed(graph.place.gpu, check.slot, after, replay.through, &answer);
    used |= gpu_.FindReplayed(graph.place.gpu, check.slot, 0, replay.through, &answer);
  }
  const bool nothing = !found && observer.bad_values.size() == 0 && !observer.poison.Poisoned();
  if (graph.nodes_bad) {
    for (SequenceEntry& node : graph.nodes) node.value = {};
  }
  graph.nodes_bad = found;
  graph.passes.clear();
  const uint64_t region_bad_before = std::exchange(region_bad_at_, 0);
  uint64_t last_bad_event = 0;
  last_bad_event_ = &last_bad_event;
  const std::vector<Event*>& events = nothing ? graph.others : graph.events;
  for (const Event* event : events) ResolveOnce(observer, replay, *event, !found, after);
  last_bad_event_ = nullptr;
  // To ops outside, all that is in the graph has happened here.
  if (last_bad_event != 0) replay.moment.thread->last_bad_event = replay.number;
  region_bad_at_ = region_bad_at_ != 0 ? replay.number : region_bad_before;
  const std::lock_guard<std::mutex> lock(graphs_->mutex);
  if (replay.through != kUnannounced) graph.told = replay.through;
  // While a replay is under way, what it finds could be lost.
  if (!used || (replay.through != kUnannounced && graph.begun != replay.through)) return;
  for (const Graph::Check& check : graph.checks) gpu_.Forget(graph.place.gpu, check.slot);
}

// Something was found in a graph whose replays are no events. It was written before all that is not
// told yet could be answered, or beside it, and what reads it must find it known. False: the graph
// is given time to end, and nothing is to be told meanwhile.
bool GpuEventQueue::ResolveUnannounced(Observer& observer) noexcept {
  constexpr uint64_t kQuietNs = 10'000'000;
  constexpr uint64_t kPatienceNs = 100'000'000;
  const std::span<const uint64_t> noticed = gpu_.TakeNoticed();
  if (noticed.empty() && graphs_->noticed.empty()) return true;
  const uint64_t now = MonotonicNs();
  for (const uint64_t ticket : noticed) RecordUnannounced(ticket, now);
  if (now - graphs_->noticed_last_ns < kQuietNs && now - graphs_->noticed_first_ns < kPatienceNs) {
    return graphs_->noticed.empty();
  }
  for (Graph* graph : std::exchange(graphs_->noticed, {})) {
    ReplayEvent replay{};
    replay.kind = EventKind::kReplay;
    // A number that is not told yet: what is found in memory that is gone stands until then.
    replay.number = clock_.noted.fetch_add(1, std::memory_order_acq_rel) + 1;
    replay.graph = graph;
    replay.moment = graph->checks.front().event->moment;
    replay.moment.place.pass = 0;
    replay.moment.time_ns = now;
    replay.through = kUnannounced;
    Resolve(observer, replay, nullptr);
  }
  return true;
}

void GpuEventQueue::RecordUnannounced(uint64_t ticket, uint64_t now) noexcept try {
  const auto found = graphs_->by_ticket.find(ticket);
  if (found == graphs_->by_ticket.end()) return;
  Graph* graph = found->second;
  {
    const std::lock_guard<std::mutex> lock(graphs_->mutex);
    if (graph->announced) return;
  }
  std::vector<Graph*>& all = graphs_->noticed;
  if (all.empty()) graphs_->noticed_first_ns = now;
  graphs_->noticed_last_ns = now;
  if (std::find(all.begin(), all.end(), graph) == all.end()) all.push_back(graph);
} catch (const std::bad_alloc&) {
}

void GpuEventQueue::ResolveOnce(Observer& observer, ReplayEvent& replay, const Event& noted,
                                bool nothing_found, uint64_t after) noexcept {
  GpuAnswer answer{noted.ticket, device::Finished::Outcome::kClean, nullptr};
  if (noted.kind == EventKind::kPass) {
    if (replay.moment.place.pass != 0) return;
    const auto& pass = static_cast<const PassEvent&>(noted);
    const uint64_t number = observer.passes.DrawNumber();
    replay.graph->passes.push_back({pass.pass, number});  // KeepForReplays has made room
    auto* copy = static_cast<PassEvent*>(CopyOf(noted, replay));
    if (copy == nullptr) return;
    copy->pass = number;
    return Resolve(observer, *copy, nullptr);
  }
  bool bad = false;
  if (noted.ticket != 0 && !nothing_found) {
    bad = gpu_.FindReplayed(replay.graph->place.gpu, static_cast<const OpEvent&>(noted).slot, after,
                            replay.through, &answer);
  }
  // The replay may go on: what has been found is all that is known of it.
  const bool sure = replay.through != kUnannounced;
  if (!sure && (IsUpdate(noted.kind) || (noted.ticket != 0 && !bad))) return;
  Event* copy = CopyOf(noted, replay);
  if (copy == nullptr) return;
  Resolve(observer, *copy, noted.ticket != 0 ? &answer : nullptr);
  if (bad || noted.kind != EventKind::kOp) return;
  // Every replay writes the same memory: what an earlier one has left there is gone.
  const auto& op = static_cast<const OpEvent&>(*copy);
  for (uint32_t i = 0; i < op.outputs; ++i) {
    ForgetBad(observer.bad_values, op.tensors[i].seen);
  }
}

}  // namespace nanwatch
