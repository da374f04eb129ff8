// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/level/sampling.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "shim/check/scan.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/source_list.h"
#include "shim/observe/events/step_clock.h"
#include "shim/observe/finding/findings.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/gpu/gpu_listener.h"
#include "shim/observe/gpu/moment.h"
#include "shim/observe/python/api/storage_hold.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/script_frames.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {
namespace {

constexpr uint32_t kMaskFamilies = kFills | kMasks | kMoves | kEnters;

bool Overlaps(const InputSeen& seen, const PlainTensor& written) {
  return seen.storage.storage == written.storage && seen.byte_begin < written.byte_end &&
         written.byte_begin < seen.byte_end;
}

bool Covers(const PlainTensor& written, const InputSeen& seen) {
  return written.IsDense() && written.byte_begin <= seen.byte_begin &&
         written.byte_end >= seen.byte_end;
}

// What is in the memory of a recorded value now. It is held while it is read, and while it is bad:
// another thread may be about to let go of it.
struct Found {
  c10::intrusive_ptr<c10::StorageImpl> held;  // null: it could not be read,
  bool is_dead = false;                       // because it is gone
  uint8_t kinds = 0;
};

Found LookAt(ThreadState* thread, const SampledValue& value) {
  const InputSeen& seen = value.seen;
  Found found{.held = TakeStorage(static_cast<const c10::StorageImpl*>(seen.storage.storage))};
  if (found.held == nullptr) {
    found.is_dead = TorchWeakStorageOps().expired(seen.storage.handle);
    return found;
  }
  if (!IsAlive(seen)) return {.held = {}, .is_dead = true};  // the storage has other memory now
  const TensorView view = seen.View();
  ++thread->counters.tensors_checked;
  thread->counters.bytes_checked += BytesOf(view);
  if (HasNonFinite(view)) found.kinds = NonFiniteKinds(view);
  return found;
}

bool WritesArguments(const OpTraits& op) { return (op.updates | op.overwrites | op.rewrites) != 0; }

bool IsMaskOf(const OpTraits& op, uint8_t kinds) {
  return kinds == wire::kHasNegInf && (op.families & kMaskFamilies) != 0;
}

}  // namespace

// All that was recorded, as it is read.
struct Sampling::Reading {
  struct Bad {
    SampledValue value;
    c10::intrusive_ptr<c10::StorageImpl> held;  // so that nobody lets go of it meanwhile
    uint8_t kinds;
    bool known;  // by its record, which is in `entry`
    BadEntry entry;
  };

  ThreadState* thread;
  const Frame* frame = nullptr;  // of the op that showed something; null: no op did
  const BadOutput* outputs = nullptr;
  int count = 0;
  std::optional<SampledValue> first{};  // the oldest of all, which is in no list any more
  bool any_died = false;
  std::vector<Bad> bad{};  // oldest first
  Doubt doubt{};

  // Bad values that an op may have read which left `kinds`. A NaN comes of a NaN rather than of an
  // Inf, and of a mask only if that is all there is.
  void AddSuspects(uint8_t kinds, Sources* sources) const noexcept {
    const bool nan = (kinds & wire::kHasNan) != 0;
    for (const bool want_nan : {true, false}) {
      for (auto one = bad.rbegin(); one != bad.rend(); ++one) {
        const bool has_nan = (one->kinds & wire::kHasNan) != 0;
        if (!one->known || has_nan != want_nan || (has_nan && !nan)) continue;
        if (IsMaskOf(*one->value.op, one->kinds)) continue;
        wire::Source source = SourceFrom(one->entry);
        source.kinds = one->kinds;
        source.input = 255;
        sources->Add(source, one->entry.value.index);
      }
      if (sources->count != 0) return;
    }
  }
  // Whether anything is bad that no mask is.
  [[nodiscard]] bool AnyFault() const noexcept {
    return std::any_of(bad.begin(), bad.end(),
                       [](const Bad& one) { return !IsMaskOf(*one.value.op, one.kinds); });
  }
};

bool Sampling::Record(ThreadState* thread, const Frame& frame, const at::TensorBase& tensor,
                      const PlainTensor& plain, uint8_t index) noexcept {
  if (parts_.poison.Poisoned()) return true;
  if (plain.view.ndim > wire::kShapeDimsMax) return false;
  const BusyScope busy(thread);
  SampledValue value{};
  value.moment = TakeMoment({parts_.segment, parts_.python, parts_.gpu.calls()}, thread);
  value.clocks = parts_.clock.Now();
  value.op = frame.op;
  value.sequence = frame.sequence;
  value.call = thread->counters.ops_seen;
  value.seen.Copy(plain);
  value.seen.argument = index;
  value.seen.place_in_list = InputSeen::kNoList;
  value.seen.requires_grad = tensor.requires_grad();
  SampledValue oldest;
  bool added = false;
  const bool evicted = values_.Add(value, &oldest, &added);
  if (!added) value.Drop();
  if (evicted) OnEvicted(thread, oldest);
  return added;
}

// What has to make room and is still there is read now, so that nothing is ever lost.
void Sampling::OnEvicted(ThreadState* thread, SampledValue oldest) noexcept {
  Reading reading{.thread = thread};
  const Found found = LookAt(thread, oldest);
  if (found.held == nullptr) {
    if (!found.is_dead) lost_.store(true, std::memory_order_relaxed);
    return oldest.Drop();
  }
  if (found.kinds == 0) return oldest.Drop();
  reading.first = oldest;
  ReadAll(reading);
  if (reading.AnyFault()) parts_.control.Raise();
}

// ---- something bad has shown

void Sampling::OnBadOutputs(ThreadState* thread, Frame& frame, const BadOutput* outputs,
                            int count) noexcept {
  if (thread->proof || parts_.poison.Poisoned() || !IsInDoubt()) {
    return parts_.findings.OnBadOutputs(thread, frame, outputs, count);
  }
  uint8_t kinds = 0;
  for (int i = 0; i < count; ++i) kinds |= NonFiniteKinds(outputs[i].tensor.view);
  Reading reading{.thread = thread, .frame = &frame, .outputs = outputs, .count = count};
  const bool mask = kinds == wire::kHasNegInf && IsMask(frame);
  if (mask) {
    reading.doubt.unknown = values_.Any() || lost_.load(std::memory_order_relaxed);
  } else {
    ReadAll(reading);
    reading.AddSuspects(kinds, &reading.doubt.suspects);
  }
  thread->doubt = &reading.doubt;
  parts_.findings.OnBadOutputs(thread, frame, outputs, count);
  thread->doubt = nullptr;
  if (!mask) parts_.control.Raise();
}

// Level sampled is in force, or was and has left something. At a lower level nobody knows what has
// become of that.
bool Sampling::IsInDoubt() noexcept {
  const wire::Level watched = parts_.level.watched();
  if (watched == wire::Level::kSampled) return true;
  if (watched != wire::Level::kFull) values_.Clear();
  return values_.Any() || lost_.load(std::memory_order_relaxed);
}

// Of -Inf alone, which ops are told to write or make in every step.
bool Sampling::IsMask(const Frame& frame) noexcept {
  if (frame.inputs_seen || (frame.op->families & kMaskFamilies) != 0) return true;
  const Layer* layer = CurrentLayer();
  const std::lock_guard<std::mutex> lock(reading_);
  for (Habit& habit : habits_) {
    if (habit.op == nullptr) habit = {frame.op, layer, 0};
    if (habit.op != frame.op || habit.layer != layer) continue;
    return ++habit.seen > kTimesUntilHabit;
  }
  return false;
}

void Sampling::Resolve(ThreadState* thread) noexcept {
  if (parts_.level.watched() != wire::Level::kSampled || parts_.poison.Poisoned()) return;
  const BusyScope busy(thread);
  Reading reading{.thread = thread};
  ReadAll(reading);
  parts_.control.Raise();
}

// What the op reads lives until it has ended, so that what has died was no input of it. A value
// that it has written over may have been one.
void Sampling::Read(Reading& reading, SampledValue& value) {
  const bool writes = reading.frame != nullptr && WritesArguments(*reading.frame->op);
  for (int i = 0; writes && i < reading.count; ++i) {
    const PlainTensor& written = reading.outputs[i].tensor;
    if (!Overlaps(value.seen, written)) continue;
    if (!Covers(written, value.seen)) lost_.store(true, std::memory_order_relaxed);
    reading.doubt.unknown |= reading.frame->op->updates != 0;
    return;
  }
  Found found = LookAt(reading.thread, value);
  if (found.held == nullptr && !found.is_dead) lost_.store(true, std::memory_order_relaxed);
  reading.any_died |= found.is_dead;
  if (found.kinds == 0) return;
  reading.bad.push_back({value, std::move(found.held), found.kinds, false, {}});
}

void Sampling::ReadAll(Reading& reading) noexcept {
  const std::lock_guard<std::mutex> lock(reading_);
  std::vector<SampledValue> values;
  try {
    values = values_.Take();
    if (reading.first.has_value()) values.insert(values.begin(), *reading.first);
    for (SampledValue& value : values) Read(reading, value);
    reading.doubt.unknown |= reading.any_died && IsInScript();
  } catch (...) {
    lost_.store(true, std::memory_order_relaxed);
  }
  reading.doubt.unknown |= lost_.load(std::memory_order_relaxed);
  if (!reading.bad.empty()) ReportBad(reading);
  for (SampledValue& value : values) value.Drop();
}

// Of two that share memory the bad part is the later one's, where that is bad.
void Sampling::ReportBad(Reading& reading) noexcept {
  if (resolver_ == nullptr) resolver_ = ThreadStates::MakeForResolving();
  if (resolver_ == nullptr) return;
  std::vector<Reading::Bad>& bad = reading.bad;
  for (size_t begin = 0, end = 0; begin < bad.size(); begin = end) {
    for (end = begin + 1; end < bad.size() && bad[begin].value.IsOfSameCall(bad[end].value);) ++end;
    Report(reading, begin, end);
  }
}

// Results `begin` up to `end` of one call.
void Sampling::Report(Reading& reading, size_t begin, size_t end) noexcept {
  BadOutput outputs[kBadOutputsMax];
  int count = 0;
  uint8_t kinds = 0;
  for (size_t i = begin; i < end && count < kBadOutputsMax; ++i) {
    Reading::Bad& one = reading.bad[i];
    const InputSeen& seen = one.value.seen;
    one.known =
        parts_.bad_values.Find(seen.storage.storage, seen.byte_begin, seen.byte_end, &one.entry);
    const bool shared =
        std::any_of(reading.bad.begin() + static_cast<ptrdiff_t>(end), reading.bad.end(),
                    [&seen](const Reading::Bad& later) { return Overlap(seen, later.value.seen); });
    if (one.known || shared) continue;
    kinds |= one.kinds;
    outputs[count++] = {seen.Plain(), static_cast<uint8_t>(seen.argument), seen.requires_grad};
  }
  if (count == 0) return;
  const SampledValue& value = reading.bad[begin].value;
  Traced traced;
  traced.complete = false;
  const bool constant =
      (value.op->families & (kFills | kMasks)) != 0 && (kinds & wire::kHasNan) == 0;
  if (!constant) reading.AddSuspects(kinds, &traced.sources);
  const Doubt doubt{.suspects = {}, .unknown = true};
  ThreadState* thread = resolver_;
  thread->told = &value.moment;
  thread->told_clocks = &value.clocks;
  thread->traced = &traced;
  thread->doubt = &doubt;
  thread->depth = thread->inputs_used = 0;
  thread->pass = value.moment.place.pass;
  thread->optimizer_depth = value.moment.in_optimizer;
  Frame& frame = thread->frames[0];
  frame = Frame{};
  frame.op = value.op;
  frame.kind = FrameKind::kOp;
  frame.sequence = value.sequence;
  parts_.findings.OnBadOutputs(thread, frame, outputs, count);
  thread->told = nullptr;
  thread->told_clocks = nullptr;
  thread->traced = nullptr;
  thread->doubt = nullptr;
  for (size_t i = begin; i < end; ++i) {
    Reading::Bad& one = reading.bad[i];
    const InputSeen& seen = one.value.seen;
    one.known =
        parts_.bad_values.Find(seen.storage.storage, seen.byte_begin, seen.byte_end, &one.entry);
  }
}

}  // namespace nanwatch
