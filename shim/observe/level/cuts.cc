// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/level/cuts.h"

#include <algorithm>
#include <unordered_map>

#include "shim/check/scan.h"
#include "shim/host/monotonic_clock.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/step_marks.h"
#include "shim/observe/figures/trail.h"
#include "shim/observe/finding/findings.h"
#include "shim/observe/finding/sources.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/gpu_listener.h"
#include "shim/observe/python/api/storage_hold.h"
#include "shim/observe/step/leaf_gradients.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/unseen/external_values.h"
#include "shim/observe/unseen/unobserved_writer.h"

namespace nanwatch {
namespace {

// What a module returns, and what a pass begins at, was written by one of the last ops.
constexpr uint32_t kResultAmong = 8;
constexpr uint32_t kRootAmong = 32;

enum class Found : uint8_t { kGone, kClean, kBad };

// The memory is held while it is read: another thread may be about to let go of it.
Found LookAt(ThreadState* thread, const WrittenValue& value) {
  if (!value.IsHeld()) return Found::kGone;
  const auto held = TakeStorage(static_cast<const c10::StorageImpl*>(value.seen.storage.storage));
  if (!held || !IsAlive(value.seen)) return Found::kGone;
  const TensorView view = value.seen.View();
  ++thread->counters.tensors_checked;
  thread->counters.bytes_checked += BytesOf(view);
  return HasNonFinite(view) ? Found::kBad : Found::kClean;
}

bool IsSameCall(const WrittenValue& a, const WrittenValue& b) {
  return a.moment.time_ns == b.moment.time_ns && a.moment.thread == b.moment.thread && a.op == b.op;
}

// An entry whose memory a later one has written is not as it was written.
void MarkOverwritten(const std::vector<WrittenValue*>& values) {
  struct Extent {
    uint64_t byte_begin;
    uint64_t byte_end;
    uint64_t time_ns;
  };
  std::unordered_map<const void*, std::vector<Extent>> later;
  for (auto at = values.rbegin(); at != values.rend(); ++at) {
    WrittenValue& value = **at;
    if (!value.IsHeld()) continue;
    const InputSeen& seen = value.seen;
    std::vector<Extent>& extents = later[seen.storage.storage];
    // The last that fits is the next in time.
    uint64_t by = 0;
    for (const Extent& extent : extents) {
      const bool overlaps = extent.byte_begin < seen.byte_end && seen.byte_begin < extent.byte_end;
      if (overlaps && extent.time_ns != value.moment.time_ns) by = extent.time_ns;
    }
    extents.push_back({seen.byte_begin, seen.byte_end, value.moment.time_ns});
    if (by == 0) continue;
    value.gone_by = by;
    value.Drop();
  }
}

// What a node leaves that has a leaf's size is the leaf's gradient, where nothing else has it.
void MarkLeaves(WrittenRing* ring, uint64_t begin, int64_t size, int64_t leaves) {
  int64_t fitting = 0;
  for (uint64_t i = begin; i < ring->count; ++i) {
    fitting += ring->At(i).seen.numel == size && ring->At(i).IsHeld();
  }
  for (uint64_t i = begin; i < ring->count && fitting <= leaves; ++i) {
    if (ring->At(i).seen.numel == size && ring->At(i).IsHeld()) ring->At(i).is_leaf = true;
  }
}

}  // namespace

WrittenRing* Cuts::RingOf(ThreadState* thread) noexcept {
  if (thread->written != nullptr) return thread->written;
  WrittenRing* ring = WrittenRing::Map();
  if (ring == nullptr) return nullptr;
  ring->next = rings_.load(std::memory_order_relaxed);
  while (!rings_.compare_exchange_weak(ring->next, ring, std::memory_order_release)) {
  }
  return thread->written = ring;
}

bool Cuts::Record(ThreadState* thread, const Frame& frame, const at::TensorBase& tensor,
                  const PlainTensor& plain, uint8_t index) noexcept {
  WrittenRing* ring = RingOf(thread);
  if (ring == nullptr || plain.view.ndim > wire::kShapeDimsMax) return false;
  const BusyScope busy(thread);
  const Moment moment = TakeMoment({parts_.segment, parts_.python, parts_.gpu.calls()}, thread);
  const std::lock_guard<std::mutex> lock(ring->mutex);
  // Outputs of one call have one time.
  const WrittenValue* before = ring->count != 0 ? &ring->At(ring->count - 1) : nullptr;
  const bool same_call = index != 0 && before != nullptr && before->op == frame.op &&
                         before->sequence == frame.sequence && before->seen.argument + 1 == index;
  const uint64_t time_ns = same_call ? before->moment.time_ns : moment.time_ns;
  WrittenValue& value = ring->Next(time_ns);
  value.seen.Copy(plain);
  value.seen.argument = index;
  value.seen.place_in_list = InputSeen::kNoList;
  value.seen.requires_grad = tensor.requires_grad();
  value.moment = moment;
  value.moment.time_ns = time_ns;
  value.op = frame.op;
  value.sequence = frame.sequence;
  value.iteration = parts_.marks.iteration.load(std::memory_order_relaxed);
  return true;
}

// ---- a walk over all that was noted

// What it has found. Vectors of pointers into the rings, whose mutexes it holds.
struct Cuts::Walk {
  struct BadValue {
    const WrittenValue* value;
    BadEntry entry;
    uint8_t kinds;
  };

  std::vector<std::unique_lock<std::mutex>> locks;
  std::vector<WrittenValue*> values;      // all, oldest first
  std::vector<const WrittenValue*> lost;  // not known, and never will be
  std::vector<BadValue> bad;              // oldest first
  uint32_t lost_iteration = 0;            // WrittenRing's, of the newest
  ForwardGraph graph;
  std::unordered_map<const SequenceEntry*, std::vector<const WrittenValue*>> by_node;

  // An op of this time may have read what was lost.
  [[nodiscard]] bool MayHaveRead(uint64_t time_ns, uint32_t iteration) const noexcept {
    if (lost_iteration == iteration + 1) return true;
    return std::any_of(lost.rbegin(), lost.rend(), [time_ns](const WrittenValue* value) {
      return value->moment.time_ns < time_ns && (value->gone_by == 0 || value->gone_by >= time_ns);
    });
  }
  void AddSource(const BadValue& from, Sources* sources) const {
    wire::Source source = SourceFrom(from.entry);
    source.kinds = from.kinds;
    sources->Add(source, from.entry.value.index);
  }
};

// An op whose inputs are asked for after the fact.
struct Cuts::Call {
  const OpTraits& op;
  NodeKey node;  // that it made; sequence -1: none
  uint64_t time_ns;
  uint32_t iteration;
  uint8_t kinds;  // of what it left
};

Traced Cuts::Trace(const Walk& walk, const Call& call) {
  Traced traced;
  Sources& sources = traced.sources;
  const bool nan = (call.kinds & wire::kHasNan) != 0;
  bool lost = false;
  const ForwardGraph::Inputs inputs = walk.graph.InputsOf(call.node);
  for (const SequenceEntry* made_by : inputs.made_by) {
    const auto noted = walk.by_node.find(made_by);
    if (noted == walk.by_node.end()) {
      // Looked at at once.
      if (made_by->value.ticket == 0) continue;
      wire::Source source{};
      source.kind = static_cast<uint8_t>(wire::SourceKind::kValue);
      source.site = made_by->site;
      source.value = made_by->value.ticket;
      source.kinds = call.kinds;
      source.input = 255;
      sources.Add(source, made_by->value.index);
      continue;
    }
    for (const WrittenValue* value : noted->second) {
      const auto bad = std::find_if(walk.bad.begin(), walk.bad.end(),
                                    [value](const auto& one) { return one.value == value; });
      if (bad != walk.bad.end()) walk.AddSource(*bad, &sources);
      lost |= !value->known;
    }
  }
  const bool explained = sources.count != 0 && (!nan || (sources.kinds & wire::kHasNan) != 0);
  bool guessed = false;
  if (!explained && (!inputs.known || inputs.open)) {
    lost |= walk.MayHaveRead(call.time_ns, call.iteration);
    const bool constant = (call.op.families & (kFills | kMasks)) != 0 && !nan;
    // A NaN rather comes of one than of the masks beside it, and of what was written last.
    for (const bool want_nan : {true, false}) {
      for (auto bad = walk.bad.rbegin(); bad != walk.bad.rend() && !constant; ++bad) {
        const bool has_nan = (bad->kinds & wire::kHasNan) != 0;
        if (has_nan != want_nan || (has_nan && !nan)) continue;
        walk.AddSource(*bad, &sources);
        guessed = true;
      }
    }
  }
  traced.complete = !lost && !guessed;
  return traced;
}

// All outputs of one call, oldest call first.
void Cuts::Report(WrittenValue* const* values, size_t count, Walk* walk) {
  BadOutput outputs[kBadOutputsMax];
  const WrittenValue* of[kBadOutputsMax];
  int bad = 0;
  uint8_t kinds = 0;
  for (size_t i = 0; i < count; ++i) {
    WrittenValue& value = *values[i];
    if (value.known) continue;
    const Found found = LookAt(resolver_, value);
    value.known = found != Found::kGone;
    // The gradients of steps before were looked at by their optimizers.
    const bool done =
        value.is_leaf && value.iteration != parts_.marks.iteration.load(std::memory_order_relaxed);
    if (found == Found::kGone && !done) walk->lost.push_back(&value);
    if (found != Found::kBad) continue;
    const PlainTensor plain = value.seen.Plain();
    BadEntry known;
    if (parts_.bad_values.Find(plain.storage, plain.byte_begin, plain.byte_end, &known)) {
      walk->bad.push_back({&value, known, NonFiniteKinds(plain.view)});
      continue;
    }
    if (bad == kBadOutputsMax) continue;
    kinds |= NonFiniteKinds(plain.view);
    of[bad] = &value;
    outputs[bad++] = {plain, static_cast<uint8_t>(value.seen.argument), value.seen.requires_grad};
  }
  if (bad == 0) return;
  const WrittenValue& first = *values[0];
  // What the records say of the time would be of now.
  if (first.iteration != parts_.marks.iteration.load(std::memory_order_relaxed)) {
    for (int i = 0; i < bad; ++i) {
      parts_.external_values.Remember(outputs[i].tensor, wire::Target::kNone, uint32_t{0});
    }
  } else {
    const bool made_node = outputs[0].requires_grad;
    const NodeKey node{first.moment.thread->torch_thread_id, made_node ? first.sequence : -1};
    Traced traced = Trace(*walk, {*first.op, node, first.moment.time_ns, first.iteration, kinds});
    // It may make such a mask all the time.
    traced.complete &= kinds != wire::kHasNegInf;
    ThreadState* thread = resolver_;
    thread->told = &first.moment;
    thread->traced = &traced;
    thread->depth = thread->inputs_used = 0;
    thread->pass = first.moment.place.pass;
    thread->optimizer_depth = first.moment.in_optimizer;
    Frame& frame = thread->frames[0];
    frame = Frame{};
    frame.op = first.op;
    frame.kind = FrameKind::kOp;
    frame.sequence = first.sequence;
    parts_.findings.OnBadOutputs(thread, frame, outputs, bad);
    thread->told = nullptr;
    thread->traced = nullptr;
  }
  for (int i = 0; i < bad; ++i) {
    const PlainTensor& plain = outputs[i].tensor;
    BadEntry entry;
    if (parts_.bad_values.Find(plain.storage, plain.byte_begin, plain.byte_end, &entry)) {
      walk->bad.push_back({of[i], entry, NonFiniteKinds(plain.view)});
    }
  }
}

void Cuts::WalkAll(const c10::TensorImpl* bad, Walk* walk) noexcept try {
  if (resolver_ == nullptr) resolver_ = ThreadStates::MakeForResolving();
  if (resolver_ == nullptr || parts_.poison.Poisoned()) return;
  if (bad != nullptr) walk->graph.AddMadeOf(*bad);
  walk->graph.AddMadeOfRunningNode();
  for (WrittenRing* ring = rings_.load(std::memory_order_acquire); ring != nullptr;
       ring = ring->next) {
    walk->locks.emplace_back(ring->mutex);
    walk->lost_iteration = std::max(walk->lost_iteration, ring->lost_iteration);
    ring->SweepAll(MonotonicNs());
    for (uint64_t i = ring->first(); i < ring->count; ++i) walk->values.push_back(&ring->At(i));
  }
  std::vector<WrittenValue*>& values = walk->values;
  std::stable_sort(values.begin(), values.end(), [](const WrittenValue* a, const WrittenValue* b) {
    return a->moment.time_ns < b->moment.time_ns;
  });
  MarkOverwritten(values);
  for (const WrittenValue* value : values) {
    if (!value->seen.requires_grad) continue;
    const SequenceEntry* made =
        ThreadStates::FindSequence(value->moment.thread->torch_thread_id, value->sequence);
    if (made != nullptr && made->op == value->op) walk->by_node[made].push_back(value);
  }
  for (size_t i = 0, end = 0; i < values.size(); i = end) {
    for (end = i + 1; end < values.size() && IsSameCall(*values[i], *values[end]);) ++end;
    Report(&values[i], end - i, walk);
  }
} catch (...) {
}

void Cuts::Resolve(ThreadState* thread, const c10::TensorImpl* bad) noexcept {
  if (parts_.level.watched() != wire::Level::kLayer || parts_.poison.Poisoned()) return;
  const BusyScope busy(thread);
  {
    const std::lock_guard<std::mutex> lock(walking_);
    Walk walk;
    WalkAll(bad, &walk);
  }
  parts_.control.Raise();
}

bool Cuts::IsMask(const OpTraits& op, uint8_t kinds, const Layer* layer) noexcept {
  if (kinds != wire::kHasNegInf) return false;
  if ((op.families & (kFills | kMasks | kMoves | kEnters)) != 0) return true;
  const std::lock_guard<std::mutex> lock(walking_);
  for (Habit& habit : habits_) {
    if (habit.op == nullptr) habit = {&op, layer, 0};
    if (habit.op != &op || habit.layer != layer) continue;
    return ++habit.seen > kTimesUntilHabit;
  }
  return false;
}

void Cuts::OnBadOutputs(ThreadState* thread, Frame& frame, const BadOutput* outputs,
                        int count) noexcept {
  if (parts_.level.watched() != wire::Level::kLayer || thread->proof || parts_.poison.Poisoned()) {
    return parts_.findings.OnBadOutputs(thread, frame, outputs, count);
  }
  uint8_t kinds = 0;
  for (int i = 0; i < count; ++i) kinds |= NonFiniteKinds(outputs[i].tensor.view);
  // A mask among ops whose inputs are asked for anyway.
  if (frame.inputs_seen && kinds == wire::kHasNegInf) {
    return parts_.findings.OnBadOutputs(thread, frame, outputs, count);
  }
  try {
    const std::lock_guard<std::mutex> lock(walking_);
    Walk walk;
    WalkAll(outputs[0].tensor.impl, &walk);
    Traced traced;
    if (!frame.inputs_seen) {
      const bool made_node = outputs[0].requires_grad;
      const NodeKey node{thread->torch_thread_id, made_node ? frame.sequence : -1};
      traced = Trace(walk, {*frame.op, node, MonotonicNs(),
                            parts_.marks.iteration.load(std::memory_order_relaxed), kinds});
      thread->traced = &traced;
    }
    parts_.findings.OnBadOutputs(thread, frame, outputs, count);
    thread->traced = nullptr;
  } catch (...) {
    thread->traced = nullptr;
  }
  parts_.control.Raise();
}

// ---- cuts

void Cuts::OnModuleResult(ThreadState* thread, const at::TensorBase* const* tensors,
                          size_t count) noexcept {
  if (parts_.level.watched() != wire::Level::kLayer || parts_.poison.Poisoned()) return;
  const BusyScope busy(thread);
  parts_.gpu.CutAtResults(thread, {tensors, count});
  for (size_t i = 0; i < count; ++i) {
    LookAtResult(thread, *tensors[i]);
  }
  WrittenRing* ring = thread->written;
  if (ring == nullptr) return;
  const std::lock_guard<std::mutex> lock(ring->mutex);
  ring->EndWindow(MonotonicNs());
}

void Cuts::LookAtResult(ThreadState* thread, const at::TensorBase& tensor) noexcept {
  PlainTensor plain;
  wire::Unchecked reason;
  if (ReadTensor(tensor, &plain, &reason) != Readable::kYes) return;
  const auto known_already = [&] {
    WrittenRing* ring = thread->written;
    if (ring == nullptr) return false;
    const std::lock_guard<std::mutex> lock(ring->mutex);
    const WrittenValue* value = ring->FindNewest(plain, kResultAmong);
    return value != nullptr && value->known;
  };
  if (known_already()) return;
  ++thread->counters.tensors_checked;
  thread->counters.bytes_checked += BytesOf(plain.view);
  const Magnitude magnitude = Look(plain.view);
  if (!magnitude.IsNonFinite()) {
    WrittenRing* ring = thread->written;
    if (ring == nullptr) return;
    const std::lock_guard<std::mutex> lock(ring->mutex);
    WrittenValue* value = ring->FindNewest(plain, kResultAmong);
    if (value == nullptr) return;
    // Of a part of what the op wrote the rest is not known.
    value->known = value->seen.byte_begin == plain.byte_begin &&
                   value->seen.byte_end == plain.byte_end && value->seen.numel == plain.view.numel;
    RecordTrail(thread, value->op, plain.view.type, magnitude,
                parts_.marks.iteration.load(std::memory_order_relaxed), parts_.headroom);
    return;
  }
  // A mask may be what a module is for.
  if (NonFiniteKinds(plain.view) == wire::kHasNegInf) return;
  Resolve(thread, plain.impl);
  wire::Source known{};
  ValueRef value;
  if (parts_.known_bad.SourceOf(plain, &known, &value)) return;
  const UnobservedWriter writer =
      UnseenAt(kModuleCall, CurrentLayer(), wire::Phase::kForward, NonFiniteKinds(plain.view), {});
  parts_.unobserved_writes.Record(thread, plain, writer);
}

void Cuts::OnPass(ThreadState* thread, const SequenceEntry* root) noexcept {
  parts_.gpu.CutAtPass(thread, root);
  WrittenRing* ring = thread->written;
  if (ring == nullptr || parts_.level.watched() != wire::Level::kLayer ||
      parts_.poison.Poisoned()) {
    return;
  }
  const BusyScope busy(thread);
  bool bad = false;
  {
    const std::lock_guard<std::mutex> lock(ring->mutex);
    const int64_t sequence =
        root != nullptr ? root->sequence.load(std::memory_order_relaxed) - 1 : -1;
    const uint64_t oldest =
        std::max(ring->first(), ring->count - std::min<uint64_t>(ring->count, kRootAmong));
    for (uint64_t i = ring->count; i > oldest && sequence >= 0; --i) {
      WrittenValue& value = ring->At(i - 1);
      if (value.sequence != sequence || value.known) continue;
      const Found found = LookAt(thread, value);
      value.known = found == Found::kClean;
      bad = found == Found::kBad;
      break;
    }
    ring->backward_begin = ring->count;
    ring->EndWindow(MonotonicNs());
  }
  if (bad) Resolve(thread, nullptr);
}

void Cuts::OnNodeEnd(ThreadState* thread) noexcept {
  parts_.gpu.CutAtNodeEnd(thread);
  WrittenRing* ring = thread->written;
  if (ring == nullptr || parts_.level.watched() != wire::Level::kLayer ||
      ring->count == ring->backward_begin || parts_.poison.Poisoned()) {
    return;
  }
  const BusyScope busy(thread);
  LookAtGradients(thread, ring);
}

void Cuts::LookAtGradients(ThreadState* thread, WrittenRing* ring) noexcept try {
  bool bad = false;
  {
    const LeafSizes leaves = LeavesOfRunningNode();
    const std::lock_guard<std::mutex> lock(ring->mutex);
    ring->EndWindow(MonotonicNs());
    const uint64_t begin = std::max(ring->backward_begin, ring->first());
    for (int64_t size : leaves) {
      if (size == 0) break;
      MarkLeaves(ring, begin, size, std::count(leaves.begin(), leaves.end(), size));
    }
    for (uint64_t i = begin; i < ring->count && !bad; ++i) {
      WrittenValue& value = ring->At(i);
      // A checkpoint computes a part of the forward anew inside its node.
      if (value.known || value.is_leaf || !value.IsHeld() ||
          value.moment.place.phase != wire::Phase::kBackward) {
        continue;
      }
      const Found found = LookAt(thread, value);
      value.known = found == Found::kClean;
      bad = found == Found::kBad;
    }
    ring->backward_begin = ring->count;
  }
  if (bad) Resolve(thread, nullptr);
} catch (...) {
}

void Cuts::OnUpdate(ThreadState* thread) noexcept {
  parts_.gpu.CutAtUpdate(thread);
  if (parts_.level.watched() != wire::Level::kLayer || parts_.poison.Poisoned()) return;
  const BusyScope busy(thread);
  bool bad = false;
  uint64_t bytes = 0;
  for (WrittenRing* ring = rings_.load(std::memory_order_acquire); ring != nullptr;
       ring = ring->next) {
    const std::lock_guard<std::mutex> lock(ring->mutex);
    ring->SweepAll(MonotonicNs());
    for (uint64_t i = ring->first(); i < ring->count && !bad; ++i) {
      WrittenValue& value = ring->At(i);
      if (value.known || value.is_leaf || !value.IsHeld() || bytes > GpuCuts::kOutlivingBytesMax)
        continue;
      bytes += BytesOf(value.seen.View());
      const Found found = LookAt(thread, value);
      value.known = found == Found::kClean;
      // A mask that is kept is one.
      bad = found == Found::kBad && NonFiniteKinds(value.seen.View()) != wire::kHasNegInf;
    }
  }
  if (bad) Resolve(thread, nullptr);
}

}  // namespace nanwatch
