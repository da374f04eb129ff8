// SPDX-License-Identifier: Apache-2.0
// Replays of CUDA graphs are resolved (gpu_graphs.h).
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "shim/host/monotonic_clock.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/gpu/resolver.h"
#include "shim/observe/step/backward_pass.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {
namespace {

// The tensors that an event holds, `fn` called for each.
template <class Fn>
void ForEachTensor(QueuedEvent* event, Fn&& fn) {
  switch (event->kind) {
    case EventKind::kOp:
    case EventKind::kHanded: {
      auto* op = static_cast<OpEvent*>(event);
      if (op->list != nullptr) return;  // it is shared, and stays as it is
      for (uint32_t i = 0; i < op->outputs + op->inputs; ++i) fn(op->tensors[i]);
      return;
    }
    case EventKind::kView:
      return fn(static_cast<ViewEvent*>(event)->tensor);
    case EventKind::kLeaf:
      if (static_cast<LeafEvent*>(event)->has_gradient)
        fn(static_cast<LeafEvent*>(event)->gradient);
      return;
    default:
      return;
  }
}

// For any event: none has a stricter alignment than an op's.
void* AllocateEvent(size_t bytes) {
  constexpr size_t kAlignment = alignof(OpEvent);
  return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
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

void GpuResolver::KeepForReplays(QueuedEvent* event) noexcept try {
  if (event->kind == EventKind::kNothing) return;
  GpuGraph* graph = event->graph;
  QueuedEvent* kept = MoveToGraph(event);
  if (kept == nullptr) {
    const bool checked = event->ticket != 0;
    resolver_->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)] +=
        checked ? static_cast<OpEvent*>(event)->outputs : 0;
    return DropTensors(event);
  }
  GiveOwnNode(graph, kept);
  graph->events.push_back(kept);
  if (kept->ticket != 0) {
    graph->checks.push_back({static_cast<OpEvent*>(kept)->slot, static_cast<OpEvent*>(kept)});
    state_.graphs->by_ticket.emplace(kept->ticket, graph);
  } else if (IsResolvedAtEveryReplay(kept->kind)) {
    // A replay numbers its passes, and must not allocate for that.
    graph->passes.reserve(graph->others.size() + 1);
    graph->others.push_back(kept);
  }
} catch (const std::bad_alloc&) {
}

QueuedEvent* GpuResolver::MoveToGraph(QueuedEvent* event) noexcept {
  const TensorList* list =
      event->kind == EventKind::kHanded ? static_cast<OpEvent*>(event)->list : nullptr;
  const uint64_t bytes = event->bytes + (list != nullptr ? list->memory() : 0);
  if (state_.graphs->bytes + bytes > GpuGraphs::kBytesMax) return nullptr;
  void* memory = AllocateEvent(event->bytes);
  if (memory == nullptr) return nullptr;
  state_.graphs->bytes += bytes;
  // What it holds of tensors moves with it.
  std::memcpy(memory, static_cast<const void*>(event), event->bytes);
  return static_cast<QueuedEvent*>(memory);
}

// Threads write over what their sequence numbers stand for; a graph's ops and passes go on to mean
// what they meant at the capture.
void GpuResolver::GiveOwnNode(GpuGraph* graph, QueuedEvent* event) noexcept try {
  const auto own = [this](SequenceRef* ref) {
    const auto found = state_.graphs->nodes.find({ref->entry, ref->sequence_plus_one});
    if (found != state_.graphs->nodes.end()) ref->entry = found->second;
  };
  if (event->kind == EventKind::kPass) own(&static_cast<PassEvent*>(event)->root);
  own(&event->moment.node_made_by);
  const Frame* frame = event->kind == EventKind::kOp     ? &static_cast<OpEvent*>(event)->frame
                       : event->kind == EventKind::kView ? &static_cast<ViewEvent*>(event)->frame
                                                         : nullptr;
  if (frame == nullptr || frame->sequence < 0 || event->moment.thread == nullptr) return;
  const SequenceEntry* entry =
      &event->moment.thread->sequences[frame->sequence & (ThreadState::kSequences - 1)];
  SequenceEntry*& node = state_.graphs->nodes[{entry, frame->sequence + 1}];
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

// Whoever is told may write to what it is told of, and hold on to nothing.
QueuedEvent* GpuResolver::CopyOf(const QueuedEvent& noted, const ReplayEvent& replay) noexcept {
  if (state_.graphs->copy == nullptr) {
    constexpr size_t kBytesMax = sizeof(OpEvent) + OpEvent::kTensorsMax * sizeof(SeenTensor);
    state_.graphs->copy = AllocateEvent(kBytesMax);
  }
  if (state_.graphs->copy == nullptr) return nullptr;
  auto* copy = static_cast<QueuedEvent*>(
      std::memcpy(state_.graphs->copy, static_cast<const void*>(&noted), noted.bytes));
  const WeakStorageOps ops = TorchWeakStorageOps();
  ForEachTensor(copy, [&ops](SeenTensor& tensor) {
    // Another tensor may be at its address by now; its storage's is never used again.
    if (ops.expired(tensor.seen.storage.handle)) tensor.seen.impl = nullptr;
  });
  copy->moment.time_ns = replay.moment.time_ns;
  if (copy->moment.place.pass == 0) return copy;
  if (replay.moment.place.pass != 0) {
    copy->moment.place.pass = replay.moment.place.pass;
    return copy;
  }
  std::vector<GpuGraph::PassNumber>& passes = replay.graph->passes;
  const auto number = std::find_if(passes.begin(), passes.end(), [copy](const auto& pass) {
    return pass.at_capture == copy->moment.place.pass;
  });
  if (number != passes.end()) copy->moment.place.pass = number->at_replay;
  return copy;
}

void GpuResolver::ResolveReplay(ReplayEvent& replay) noexcept {
  GpuGraph& graph = *replay.graph;
  const uint64_t after = graph.told;
  GpuAnswer answer;
  bool found = false;
  bool used = false;
  for (const GpuGraph::Check& check : graph.checks) {
    found |=
        state_.checks.FindReplayed(graph.place.gpu, check.slot, after, replay.through, &answer);
    used |= state_.checks.FindReplayed(graph.place.gpu, check.slot, 0, replay.through, &answer);
  }
  const bool nothing = !found && parts_.bad_values.size() == 0 && !parts_.poison.Poisoned();
  if (graph.nodes_bad) {
    for (SequenceEntry& node : graph.nodes) node.value = {};
  }
  graph.nodes_bad = found;
  graph.passes.clear();
  const uint64_t region_bad_before = std::exchange(region_bad_at_, 0);
  uint64_t last_bad_event = 0;
  last_bad_event_ = &last_bad_event;
  const std::vector<QueuedEvent*>& events = nothing ? graph.others : graph.events;
  for (const QueuedEvent* event : events) ResolveOnce(replay, *event, !found, after);
  last_bad_event_ = nullptr;
  // To ops outside, all that is in the graph has happened here.
  if (last_bad_event != 0) replay.moment.thread->last_bad_event = replay.number;
  region_bad_at_ = region_bad_at_ != 0 ? replay.number : region_bad_before;
  const std::lock_guard<std::mutex> lock(state_.graphs->mutex);
  if (replay.through != kUnannounced) graph.told = replay.through;
  // While a replay is under way, what it finds could be lost.
  if (!used || (replay.through != kUnannounced && graph.begun != replay.through)) return;
  for (const GpuGraph::Check& check : graph.checks)
    state_.checks.Forget(graph.place.gpu, check.slot);
}

// Something was found in a graph whose replays are no events. It was written before all that is not
// told yet could be answered, or beside it, and what reads it must find it known. False: the graph
// is given time to end, and nothing is to be told meanwhile.
bool GpuResolver::ResolveUnannounced() noexcept {
  constexpr uint64_t kQuietNs = 10'000'000;
  constexpr uint64_t kPatienceNs = 100'000'000;
  const std::span<const uint64_t> noticed = state_.checks.TakeNoticed();
  if (noticed.empty() && state_.graphs->noticed.empty()) return true;
  const uint64_t now = MonotonicNs();
  for (const uint64_t ticket : noticed) RecordUnannounced(ticket, now);
  if (now - state_.graphs->noticed_last_ns < kQuietNs &&
      now - state_.graphs->noticed_first_ns < kPatienceNs) {
    return state_.graphs->noticed.empty();
  }
  for (GpuGraph* graph : std::exchange(state_.graphs->noticed, {})) {
    ReplayEvent replay{};
    replay.kind = EventKind::kReplay;
    // A number that is not told yet: what is found in memory that is gone stands until then.
    replay.number = state_.ring.clock().noted.fetch_add(1, std::memory_order_acq_rel) + 1;
    replay.graph = graph;
    replay.moment = graph->checks.front().event->moment;
    replay.moment.place.pass = 0;
    replay.moment.time_ns = now;
    replay.through = kUnannounced;
    Resolve(replay, nullptr);
  }
  return true;
}

void GpuResolver::RecordUnannounced(uint64_t ticket, uint64_t now) noexcept try {
  const auto found = state_.graphs->by_ticket.find(ticket);
  if (found == state_.graphs->by_ticket.end()) return;
  GpuGraph* graph = found->second;
  {
    const std::lock_guard<std::mutex> lock(state_.graphs->mutex);
    if (graph->announced) return;
  }
  std::vector<GpuGraph*>& all = state_.graphs->noticed;
  if (all.empty()) state_.graphs->noticed_first_ns = now;
  state_.graphs->noticed_last_ns = now;
  if (std::find(all.begin(), all.end(), graph) == all.end()) all.push_back(graph);
} catch (const std::bad_alloc&) {
}

void GpuResolver::ResolveOnce(ReplayEvent& replay, const QueuedEvent& noted, bool nothing_found,
                              uint64_t after) noexcept {
  GpuAnswer answer{noted.ticket, device::Finished::Outcome::kClean, nullptr};
  if (noted.kind == EventKind::kPass) {
    if (replay.moment.place.pass != 0) return;
    const auto& pass = static_cast<const PassEvent&>(noted);
    const uint64_t number = parts_.passes.DrawNumber();
    replay.graph->passes.push_back({pass.pass, number});  // KeepForReplays has made room
    auto* copy = static_cast<PassEvent*>(CopyOf(noted, replay));
    if (copy == nullptr) return;
    copy->pass = number;
    return Resolve(*copy, nullptr);
  }
  bool bad = false;
  if (noted.ticket != 0 && !nothing_found) {
    bad =
        state_.checks.FindReplayed(replay.graph->place.gpu, static_cast<const OpEvent&>(noted).slot,
                                   after, replay.through, &answer);
  }
  // The replay may go on: what has been found is all that is known of it.
  const bool sure = replay.through != kUnannounced;
  if (!sure && (IsUpdate(noted.kind) || (noted.ticket != 0 && !bad))) return;
  QueuedEvent* copy = CopyOf(noted, replay);
  if (copy == nullptr) return;
  Resolve(*copy, noted.ticket != 0 ? &answer : nullptr);
  if (bad || noted.kind != EventKind::kOp) return;
  // Every replay writes the same memory: what an earlier one has left there is gone.
  const auto& op = static_cast<const OpEvent&>(*copy);
  for (uint32_t i = 0; i < op.outputs; ++i) {
    ForgetBad(parts_.bad_values, op.tensors[i].seen);
  }
}

}  // namespace nanwatch
