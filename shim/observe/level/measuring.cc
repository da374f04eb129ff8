// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/level/measuring.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "shim/host/monotonic_clock.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/level/level_control.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/unseen/named_values.h"

namespace nanwatch {

// Each optimizer has had its turn when the one that is behind has caught up.
bool Measuring::EndsCycle(const wire::Clocks& clocks) noexcept {
  uint32_t fewest = UINT32_MAX;
  for (const uint32_t steps : clocks.optimizer_steps) {
    if (steps != 0) fewest = std::min(fewest, steps);
  }
  return fewest != UINT32_MAX && std::exchange(rounds_, fewest) != fewest;
}

bool Measuring::IsCalm(ThreadState* thread, const Step& step) noexcept {
  const bool same_thread = std::exchange(trains_, thread) == thread;
  // What an unchecked step shows nothing of is taken to be as it was.
  if (!step.off) readable_ = step.readable;
  const bool suspicious = !step.off && suspicion_.IsRaisedBy(step.seen);
  const wire::Level asked = parts_.level.asked();
  return step.calm && readable_ && same_thread && !suspicious && !parts_.stops_on_anomaly &&
         (asked == wire::Level::kFull || asked == wire::Level::kCanary) &&
         parts_.python.ReportsSteps() && !parts_.gpu.On() && !parts_.poison.Blind() &&
         !parts_.poison.Ignores() && parts_.bad_values.size() == 0 && !parts_.segment.is_forked() &&
         parts_.python.running_cell() == 0;
}

void Measuring::RecordLeftOut(ThreadState* thread, const Step& step) noexcept {
  const bool is_auto = parts_.level.asked() == wire::Level::kAuto;
  // What lies on a GPU is not read when Python ends.
  const bool left_out =
      is_auto && !parts_.gpu.On() && (step.idle || parts_.level.watched() == wire::Level::kIdle);
  if (left_out) parts_.python.CallAtExitSoon();
  if (left_out && !step.idle) parts_.named_values.RememberFinite(thread);
  left_out_.store(left_out, std::memory_order_relaxed);
}

void Measuring::OnStep(ThreadState* thread, const Step& step) noexcept {
  RecordLeftOut(thread, step);
  if (parts_.level.asked() != wire::Level::kAuto) SetOfAuto({});
  if (!wanted_.load(std::memory_order_relaxed)) return;
  CostMeter::Next next;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t ended_ns = step_ended_ns_ != 0 ? step_ended_ns_ : step.time_ns;
    const uint64_t began_ns = std::exchange(step_began_ns_, step.time_ns);
    const bool was_read = std::exchange(step_ended_ns_, 0) != 0;
    steps_off_ += step.off ? 1 : 0;
    const CostMeter::Step measured{
        .ns = began_ns != 0 && ended_ns > began_ns ? ended_ns - began_ns : 0,
        .ends_cycle = EndsCycle(step.clocks),
        .off = step.off,
        // A step that was cut short is in no block.
        .calm = IsCalm(thread, step) && step.off == parts_.level.off_to_measure(),
        .in_lockstep = parts_.python.found_distributed(),
        .kind = static_cast<uint32_t>(parts_.level.asked()) + 1};
    next = meter_.OnStep(measured);
    // Where several optimizers act, each reads what it has written in the last cycle that is off.
    if (measured.ends_cycle && was_read) {
      reads_.store(false, std::memory_order_relaxed);
      unread_.store(false, std::memory_order_relaxed);
    } else if (step.off) {
      unread_.store(true, std::memory_order_relaxed);
    }
    if (next.last_off || (IsUnread() && !next.off)) reads_.store(true, std::memory_order_relaxed);
  }
  const bool off = parts_.level.off_to_measure();
  // What is bad already could not be told from what goes bad in the block.
  if (next.off && !off && !parts_.named_values.AreAllFinite(thread)) return;
  if (next.off) parts_.python.CallAtExitSoon();
  if (next.off) unread_.store(true, std::memory_order_relaxed);
  if (next.off != off) parts_.level.SwitchToMeasure(thread, next.off);
}

void Measuring::RecordStepEnded() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  step_ended_ns_ = MonotonicNs();
}

void Measuring::ReadAfter(ThreadState* thread) noexcept {
  (void)parts_.named_values.ReadAll(thread);
}

void Measuring::OnRootCall(ThreadState* thread) noexcept {
  if (c10::GradMode::is_enabled() || thread->optimizer_depth != 0) return;
  CutShort(thread);
  if (parts_.named_values.ReadAll(thread)) unread_.store(false, std::memory_order_relaxed);
}

void Measuring::OnFork() noexcept {
  if (parts_.level.off_to_measure()) CutShort(nullptr);
}

void Measuring::CutShort(ThreadState* thread) noexcept {
  parts_.level.SwitchToMeasure(thread, false);
  cut_short_.store(true, std::memory_order_relaxed);
  // The training may be over: the optimizer's state is read where its next step ends.
  reads_.store(true, std::memory_order_relaxed);
}

// While the checks are off, nobody saw what ran since the last step.
void Measuring::OnExit(ThreadState* thread) noexcept {
  if (left_out_.load(std::memory_order_relaxed) && parts_.named_values.ReadRemembered(thread))
    left_out_.store(false, std::memory_order_relaxed);
  if (IsUnread() && !parts_.level.off_to_measure() && parts_.named_values.ReadAll(thread))
    unread_.store(false, std::memory_order_relaxed);
}

void Measuring::SetOfAuto(const PairedRatios::Figure& figure) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  of_auto_ = figure;
}

wire::Overhead Measuring::Read() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const PairedRatios::Figure figure = of_auto_.pairs != 0 ? of_auto_ : meter_.Read();
  return {.percent = figure.median,
          .low = figure.low,
          .high = figure.high,
          .pairs = figure.pairs,
          .steps_off = steps_off_,
          .off_now = IsUnread() ||
                     (left_out_.load(std::memory_order_relaxed) && !parts_.segment.is_forked())};
}

}  // namespace nanwatch
