// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/level/level_control.h"

#include <ATen/record_function.h>

#include "shim/host/monotonic_clock.h"
#include "shim/observe/events/finding_record.h"
#include "shim/observe/events/live_publisher.h"
#include "shim/observe/level/measuring.h"
#include "shim/observe/level/watch_switch.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/step/step_progress.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {
namespace {

wire::LevelRecord Because(wire::LevelRecord::Why why, wire::Level from, wire::Level to) {
  wire::LevelRecord record{};
  record.from = static_cast<uint8_t>(from);
  record.to = static_cast<uint8_t>(to);
  record.why = static_cast<uint8_t>(why);
  record.overhead_percent = record.budget_percent = -1;
  return record;
}

}  // namespace

wire::Level LevelControl::WatchedAt(wire::Level asked) noexcept {
  // `auto` chooses after each step of an optimizer, and watches everything until there is one.
  return asked == wire::Level::kAuto ? wire::Level::kFull : asked;
}

bool LevelControl::LeavesUnread(wire::Level watched) const noexcept {
  return watched != wire::Level::kFull && (watched != wire::Level::kSampled || on_gpu_);
}

void LevelControl::SetSampleLimit(wire::Level watched) noexcept {
  const bool samples = watched == wire::Level::kSampled;
  parts_.sample_limit.bytes.store(samples ? start_.sample_limit : SampleLimit::kNoLimit,
                                  std::memory_order_relaxed);
}

void LevelControl::LookAgain(ThreadState* thread, const wire::ControlBlock& control) noexcept {
  using Why = wire::LevelRecord::Why;
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t request = control.request.load(std::memory_order_acquire);
  if (request != applied()) {
    const auto asked = wire::ControlRequest::From(request);
    deadline_ns_.store(control.deadline_ns.load(std::memory_order_acquire),
                       std::memory_order_relaxed);
    applied_.store(request, std::memory_order_relaxed);
    // Generation 0 is nobody's.
    if (asked.generation != 0 && wire::IsLevel(asked.level)) {
      parts_.python.WantWholeStacks((asked.flags & wire::ControlRequest::kStacks) != 0);
      requested_ = true;
      Apply(thread, asked.level, Why::kAsked);
    }
    parts_.live.Publish(wire::LiveState::kWatching);
  }
  const uint64_t deadline = deadline_ns_.load(std::memory_order_relaxed);
  if (deadline == 0 || MonotonicNs() < deadline) return;
  deadline_ns_.store(0, std::memory_order_relaxed);
  parts_.python.WantWholeStacks(false);
  requested_ = false;
  Apply(thread, Unasked(), Why::kDeadline);
  parts_.live.Publish(wire::LiveState::kWatching);
}

wire::Level LevelControl::Unasked() const noexcept {
  return on_gpu_ && !start_.chosen ? wire::Level::kSampled : start_.level;
}

void LevelControl::RecordIfHidden() noexcept {
  if (parts_.watch_switch.refused()) CountStepUnwatched();
  if (at::isRecordFunctionEnabled()) return;
  const ThreadState* thread = ThreadStates::Known();
  const bool in_update = thread != nullptr && thread->optimizer_watches_ops;
  if (!WatchesEveryOp(watched()) && !in_update) return;
  if (!was_hidden_.exchange(true)) {
    parts_.entry.say(
        "the program switches torch's record functions off; ops that run meanwhile are not seen");
  }
  CountStepUnwatched();
  was_lower_.store(true, std::memory_order_relaxed);
  switched_from_.store(wire::Level::kIdle, std::memory_order_relaxed);
  switched_in_step_.store(parts_.steps.completed(), std::memory_order_relaxed);
}

void LevelControl::CountStepUnwatched() noexcept {
  if (hidden_.exchange(true, std::memory_order_relaxed)) return;
  parts_.steps.CountWatched(wire::Level::kIdle);
  parts_.live.Publish(wire::LiveState::kWatching);  // the job may end in this step
}

void LevelControl::OnFirstGpu(ThreadState* thread) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  on_gpu_ = true;
  if (LeavesUnread(watched())) was_lower_.store(true, std::memory_order_relaxed);
  if (!start_.chosen && !requested_) {
    Apply(thread, Unasked(), wire::LevelRecord::Why::kOnGpu);
  }
  parts_.watch_switch.OnGpu(*this);
  parts_.live.Publish(wire::LiveState::kWatching);
}

void LevelControl::Apply(ThreadState* thread, wire::Level asked,
                         wire::LevelRecord::Why why) noexcept {
  const wire::Level before = asked_.exchange(asked, std::memory_order_relaxed);
  // Steps at idle are counted as they end. What ran at idle may be less than a step, or a step that
  // idle does not count: a scaler that skips the update.
  const bool began_here = switched_in_step() == parts_.steps.completed();
  if (before == wire::Level::kIdle && asked != before && began_here) CountStepUnwatched();
  off_to_measure_.store(false, std::memory_order_relaxed);
  if (LeavesUnread(WatchedAt(asked))) was_lower_.store(true, std::memory_order_relaxed);
  Switch(thread, WatchedAt(asked));
  if (before == asked) return;
  wire::LevelRecord record = Because(why, before, asked);
  record.control = applied();
  EmitChange(thread, record);
}

void LevelControl::Raise() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (watched() != wire::Level::kSampled) return;
  raised_in_.store(parts_.steps.completed() + 1, std::memory_order_relaxed);
  Switch(nullptr, wire::Level::kFull);
}

void LevelControl::OnStep(ThreadState* thread, const AutoLevel::Step& step) noexcept {
  if (asked() == wire::Level::kSampled && watched() == wire::Level::kFull) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint32_t raised = raised_in_.load(std::memory_order_relaxed);
    // As at `auto` after something suspicious: what has come once may come again.
    const bool over = parts_.steps.completed() + 1 - raised > AutoLevel::kAlertSteps;
    if (over && asked() == wire::Level::kSampled) Switch(thread, wire::Level::kSampled);
  }
  if (asked() != wire::Level::kAuto) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (asked() != wire::Level::kAuto) return;
  const wire::Level before = watched();
  const AutoLevel::Next next = automatic_.OnStep(step);
  // On a GPU a step is recorded when others are running.
  if (!on_gpu_) parts_.measuring.SetOfAuto(automatic_.Read());
  Switch(thread, next.watched);
  if (!next.tell) return;
  wire::LevelRecord record = Because(next.why, before, next.watched);
  record.full_every = next.full_every;
  record.overhead_percent = next.overhead_percent;
  record.budget_percent = automatic_.budget_percent();
  record.control = applied();
  EmitChange(thread, record);
}

void LevelControl::SwitchToMeasure(ThreadState* thread, bool off) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const wire::Level asked = this->asked();
  const bool may_be_off =
      (asked == wire::Level::kFull || asked == wire::Level::kCanary) && watched() == asked;
  if (off ? !may_be_off : !off_to_measure()) return;
  off_to_measure_.store(off, std::memory_order_relaxed);
  Switch(thread, off ? wire::Level::kIdle : asked, /*to_measure=*/true);
}

void LevelControl::ChooseRanges() noexcept { parts_.watch_switch.ChooseRanges(*this); }

void LevelControl::Switch(ThreadState* thread, wire::Level watched, bool to_measure) noexcept {
  const wire::Level before = watched_.exchange(watched, std::memory_order_relaxed);
  if (before == watched) return;
  SetSampleLimit(watched);
  if (to_measure) {
    was_off_.store(true, std::memory_order_relaxed);
  } else if (LeavesUnread(watched)) {
    was_lower_.store(true, std::memory_order_relaxed);
  }
  switched_to_measure_.store(to_measure, std::memory_order_relaxed);
  switched_from_.store(before, std::memory_order_relaxed);
  switched_in_step_.store(parts_.steps.completed(), std::memory_order_relaxed);
  parts_.watch_switch.Apply(*this, thread);
}

void LevelControl::EmitChange(ThreadState* thread, wire::LevelRecord record) noexcept {
  Emitter* emitter = parts_.segment.emitter();
  if (emitter == nullptr || thread == nullptr) return;
  record.header =
      parts_.records.MakeHeader(thread, *emitter, wire::RecordKind::kLevel, sizeof record);
  emitter->Emit(record.header);
}

}  // namespace nanwatch
