// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/step_publisher.h"

#include <cmath>

#include "proto/wire/cell_record.h"
#include "shim/host/monotonic_clock.h"
#include "shim/observe/capsule/capsules.h"
#include "shim/observe/events/fact_sink.h"
#include "shim/observe/events/finding_record.h"
#include "shim/observe/events/level_state.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/events/step_marks.h"
#include "shim/observe/figures/headroom.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/step/poison_watch.h"
#include "shim/observe/step/scaler_state.h"
#include "shim/observe/step/step_losses.h"
#include "shim/observe/step/step_progress.h"
#include "shim/observe/torch/input_tracking.h"
#include "shim/observe/unseen/read_numbers.h"

namespace nanwatch {
namespace {

using wire::TelemetryEntry;

// A bad value that has been there for this many steps is part of the scenery (a mask in a buffer).
constexpr uint32_t kStepsUntilResident = 3;

void AddCounters(wire::StepEntry* entry) {
  const ThreadCounters sum = ThreadStates::Sum();
  entry->ops_seen = sum.ops_seen;
  entry->tensors_checked = sum.tensors_checked;
  entry->bytes_checked = sum.bytes_checked;
  entry->values_bad = sum.values_bad;
}

}  // namespace

void StepPublisher::SetGradients(const Gradients& gradients) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  gradients_ = gradients;
}

Gradients StepPublisher::gradients() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return gradients_;
}

void StepPublisher::OnCell() noexcept {
  cell_began_ns_.store(MonotonicNs(), std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(mutex_);
  step_began_ns_ = 0;
}

// What a step says of itself: while parameters are bad, nothing is watched.
wire::Level StepPublisher::WatchedNow() const noexcept {
  return uses_.poison.Blind() ? wire::Level::kIdle : uses_.level.watched();
}

// What was bad is a step older.
void StepPublisher::Age() noexcept {
  uses_.bad_values.Sweep(0);
  const uint32_t iteration = uses_.progress.completed();
  uses_.marks.iteration.store(iteration, std::memory_order_relaxed);
  uses_.bad_values.Settle(iteration, kStepsUntilResident);
  uses_.read_numbers.OnStep(iteration);
  if (uses_.bad_values.transient() == 0) uses_.tracking.Disarm();
  uses_.poison_watch.Settle();
}

void StepPublisher::EmitCell(ThreadState* thread, uint64_t began_ns) noexcept {
  Emitter* emitter = uses_.segment.emitter();
  if (emitter == nullptr || thread == nullptr) return;
  wire::LevelRecord record{};
  record.header =
      uses_.records.MakeHeader(thread, *emitter, wire::RecordKind::kLevel, sizeof record);
  record.from = record.to = static_cast<uint8_t>(uses_.level.asked());
  record.why = wire::kLevelWhyCell;
  record.full_every = uses_.python.running_cell();
  record.overhead_percent = record.budget_percent = -1;
  record.control = began_ns;
  emitter->Emit(record.header);
}

void StepPublisher::FillEntry(ThreadState* thread, uint32_t optimizer, bool skipped,
                              wire::StepEntry* into) noexcept {
  wire::StepEntry& entry = *into;
  AddCounters(&entry);
  const uint64_t cell_ns = cell_began_ns_.exchange(0, std::memory_order_relaxed);
  if (cell_ns != 0) {
    EmitCell(thread, cell_ns);
    entry.flags |= wire::kStepBeginsCell;
  }
  entry.clocks = uses_.progress.Now();
  entry.optimizer = optimizer;
  entry.flags |= uses_.progress.PlaceOf(optimizer) << wire::kPlaceShift;
  entry.flags |= (skipped ? 2u : 0u) | (uses_.poison.Poisoned() ? 4u : 0u);
  entry.time_ns = MonotonicNs();
}

void StepPublisher::TakeTelemetry(uint64_t now_ns, TelemetryEntry* into) noexcept {
  TelemetryEntry& entry = *into;
  entry.time_ns = now_ns;
  entry.level = static_cast<uint32_t>(WatchedNow());
  if (uses_.losses.TakeOfStep(&entry.loss)) entry.known |= TelemetryEntry::kLoss;
  if (uses_.scaler.Scale(&entry.scale)) entry.known |= TelemetryEntry::kScale;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (step_began_ns_ != 0) {
    entry.step_ns = now_ns - step_began_ns_;
    entry.known |= TelemetryEntry::kStepTime;
  }
  step_began_ns_ = now_ns;
  entry.gradient_norm = gradients_.norm;
  entry.gradients = gradients_.count;
  entry.gradients_missing = gradients_.missing;
  entry.gradients_zero = gradients_.zero;
  entry.gradients_bad = gradients_.bad;
  entry.learning_rate = gradients_.rate;
  if (gradients_.rate_known) entry.known |= TelemetryEntry::kLearningRate;
  if (gradients_.known) entry.known |= TelemetryEntry::kGradients;
  if (gradients_.norm_known) entry.known |= TelemetryEntry::kGradientNorm;
  gradients_ = {};
}

void StepPublisher::Publish(ThreadState* thread, uint32_t optimizer, bool skipped) noexcept {
  const bool refused = uses_.tracking.TakeRefused();
  Age();
  Emitter* emitter = uses_.segment.Ensure();
  if (emitter == nullptr) return;
  wire::StepEntry entry{};
  FillEntry(thread, optimizer, skipped, &entry);
  const bool hidden = uses_.level.TakeHidden();
  const bool off = uses_.level.off_to_measure() || uses_.sink.TakeCutShort();
  // What became of something bad may have gone unseen, or what a fused optimizer wrote.
  if (!hidden) uses_.progress.CountWatched(off || refused ? wire::Level::kIdle : WatchedNow());
  const Gradients read = gradients();
  TelemetryEntry telemetry{};
  TakeTelemetry(entry.time_ns, &telemetry);
  const double near_limit = uses_.headroom.Take(&telemetry);
  const bool loss_known = (telemetry.known & TelemetryEntry::kLoss) != 0;
  if (loss_known) {
    entry.loss = telemetry.loss;
    entry.flags |= 1;
  }
  emitter->PublishStep(entry, telemetry);
  if (uses_.capsules.on()) {
    const bool bad_loss = loss_known && !std::isfinite(telemetry.loss);
    uses_.capsules.OnStep(skipped || bad_loss || telemetry.gradients_bad != 0);
  }
  const bool time_known = (telemetry.known & TelemetryEntry::kStepTime) != 0;
  uses_.sink.OnStep(
      thread, {.clocks = entry.clocks,
               .time_ns = entry.time_ns,
               .step_ns = time_known ? telemetry.step_ns : 0,
               .watched = static_cast<wire::Level>(telemetry.level),
               .optimizer = optimizer,
               .loss = telemetry.loss,
               .gradient_norm = telemetry.gradient_norm,
               .near_limit = near_limit,
               .loss_known = loss_known,
               .norm_known = (telemetry.known & TelemetryEntry::kGradientNorm) != 0,
               .off = off,
               .calm = !skipped && !hidden,
               // Where nothing was read of the gradients, the step before has the answer.
               .readable = read.known && !read.some_unseen && read.on_gpu == 0 && read.bad == 0});
  SegmentReport report;
  if (!emitter->KeepSegment(report) && report.message[0] != '\0') {
    uses_.entry.say(report.message);
  }
}

}  // namespace nanwatch
