// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/step_scope.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "proto/wire/cell_record.h"
#include "proto/wire/hash.h"
#include "shim/host/monotonic_clock.h"
#include "shim/observe/finding/finding_record.h"
#include "shim/observe/observer.h"
#include "shim/observe/step/canary.h"
#include "shim/observe/step/open_update.h"
#include "shim/observe/step/stop.h"
#include "shim/observe/step/update_record.h"
#include "shim/observe/torch/torch_threads.h"

namespace nanwatch {
namespace {

// A bad value that has been there for this many steps is part of the scenery (a mask in a buffer).
constexpr uint32_t kStepsUntilResident = 3;

// "Optimizer.step#AdamW.step" -> "AdamW"
std::string_view ClassOf(const char* range_name) {
  std::string_view name(range_name);
  const size_t hash = name.find('#');
  if (hash != std::string_view::npos) name.remove_prefix(hash + 1);
  const size_t dot = name.rfind(".step");
  return dot != std::string_view::npos ? name.substr(0, dot) : name;
}

// What a step says of itself: while parameters are bad, nothing is watched.
wire::Level WatchedNow(const Observer& observer) {
  return observer.Blind() ? wire::Level::kIdle : observer.level.watched();
}

// Once: who has asked for a stop is told that it may not come.
void SayUnseen(Observer& observer) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  observer.entry()->say(
      "gradients on a GPU could not be looked at before their update was applied: a bad one there "
      "does not stop the job (--on-anomaly stop)");
}

// The step that is open on this thread, if what it writes is to be looked at.
struct OpenUpdate {
  const void* optimizer = nullptr;  // null: it is not
  canary::Gradients gradients;
  char range_name[96] = {};
};
thread_local OpenUpdate open_update;
// The backward passes that had reached a leaf where it began; 0: not all that it is given is known.
thread_local uint64_t given_finite_after_passes_plus_one = 0;

bool AreFinite(const canary::Gradients& gradients) {
  return gradients.known && !gradients.some_unseen && !gradients.waits_for_gpu &&
         gradients.bad == 0 && !gradients.number_bad;
}

}  // namespace

// A closure makes the gradients anew.
bool OpenUpdateIsGivenFinite() noexcept {
  return given_finite_after_passes_plus_one == uint64_t{Observer::Get()->steps.Now().passes} + 1;
}

wire::Clocks StepScope::Now() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  return clocks_;
}

uint32_t StepScope::completed() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  return clocks_.optimizer_ranges + clocks_.plain_updates + clocks_.scaler_skips;
}

void StepScope::CountUnwatched() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++steps_watched_[static_cast<int>(wire::Level::kIdle)];
}

uint32_t StepScope::StepsOfNewest() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  return counts_.StepsOf(newest_);
}

uint32_t StepScope::IndexOf(const void* identity, const char* range_name,
                            Emitter* emitter) noexcept {
  const std::string_view class_name = ClassOf(range_name);
  const uint64_t hash = wire::Fnv1a(class_name);
  std::lock_guard<std::mutex> lock(mutex_);
  bool is_new = false;
  const uint32_t number = counts_.NumberOf(identity, hash, &clocks_, &is_new);
  if (is_new && emitter != nullptr) counts_.set_class_name(number, emitter->Intern(class_name));
  return number;
}

void StepScope::OnStepBegin(Observer& observer, ThreadState* thread, const char* range_name,
                            const void* optimizer, const void* identity) noexcept {
  if (thread->optimizer_depth++ != 0) return;
  observer.level.Look(thread);
  observer.poison_watch.At(observer, thread, PoisonWatch::Border::kStepBegins, optimizer);
  OnOptimizerBegin(observer, thread, range_name, optimizer,
                   identity != nullptr ? identity : optimizer);
}

void StepScope::OnStepEnd(Observer& observer, ThreadState* thread) noexcept {
  if (thread->optimizer_depth == 0 || --thread->optimizer_depth != 0) return;
  loss_scaled_.store(false, std::memory_order_relaxed);
  OnOptimizerEnd(observer, thread);
  observer.level.Look(thread);
  observer.poison_watch.At(observer, thread, PoisonWatch::Border::kStepEnded);
}

void StepScope::OnStepsLeft(Observer& observer, ThreadState* thread, uint32_t open) noexcept {
  if (thread->optimizer_depth <= open) return;
  thread->optimizer_depth = open;
  if (open != 0) return;
  thread->optimizer_stopped = true;
  OnOptimizerEnd(observer, thread);
}

void StepScope::OnOptimizerBegin(Observer& observer, ThreadState* thread, const char* range_name,
                                 const void* optimizer, const void* identity) noexcept {
  observer.passes.ReleaseInputs(observer);
  if (observer.segment.Ensure() == nullptr) return;
  if (!observer.gpu_events.On()) observer.SettlePoison();
  canary::Gradients gradients;
  if (observer.Blind() || observer.level.off_to_measure()) {
    gradients = canary::ReadSkip(observer, thread, optimizer);
  } else if (observer.level.watched() != wire::Level::kIdle || observer.stops_on_anomaly) {
    const auto& not_ready =
        thread->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuNotReady)];
    const uint64_t not_ready_before = not_ready;
    gradients = canary::ReadGradients(observer, thread, optimizer);
    // Where the first tensors of a GPU are gradients, it has only now begun to be set up.
    if (observer.stops_on_anomaly && not_ready != not_ready_before &&
        observer.gpu_events.WaitForSetUp(observer)) {
      gradients = canary::ReadGradients(observer, thread, optimizer);
    }
  }
  thread->optimizer_number_bad = gradients.number_bad;
  given_finite_after_passes_plus_one = AreFinite(gradients) ? uint64_t{Now().passes} + 1 : 0;
  const bool later = observer.gpu_events.On();
  observer.cuts.OnUpdate(observer, thread);
  uint64_t event = 0;
  if (later) {
    event = observer.gpu_events.EnqueueOptimizerBegin(observer, thread, identity, range_name,
                                                      gradients);
  } else {
    RecordOptimizerBegin(observer, thread, identity, range_name, gradients);
  }
  bool told = !later;
  if (later && observer.stops_on_anomaly && gradients.waits_for_gpu) {
    told = observer.gpu_events.WaitForGpu(observer, thread, event);
    if (told) gradients = GradientsAreAdded();
    if (!told || gradients.some_unseen) SayUnseen(observer);
  }
  // A fused optimizer under a GradScaler skips inside its kernel.
  const bool skipped = gradients.skipped || (told && FoundInf());
  if (gradients.bad != 0 && !skipped && observer.stops_on_anomaly) {
    thread->optimizer_stopped = StopBeforeUpdate(observer, gradients.bad, gradients.count,
                                                 gradients.first_bad, gradients.first_bad_value);
  }
  // A skipped update does nothing but take the scale from the gradients.
  const bool watches =
      observer.level.watched() != wire::Level::kIdle && !skipped && !observer.Blind();
  const bool canary = watches && observer.level.watched() == wire::Level::kCanary;
  const bool by_ops = optimizer == nullptr || iteration() < ops_watched_until_;
  thread->optimizer_watches_ops = canary && by_ops;
  open_update.optimizer = nullptr;
  const bool after_off = observer.measuring.ReadsAfterStep() && !skipped && !observer.Blind();
  if (after_off) {
    // What went in was not read in all of these steps.
    gradients.known = false;
    gradients.some_unseen = true;
  }
  if ((canary && !by_ops) || after_off) {
    open_update = {optimizer, gradients, {}};
    std::strncpy(open_update.range_name, range_name, sizeof open_update.range_name - 1);
  }
  if (thread->optimizer_watches_ops) {
    observer.input_tracking.BeginWatchedRange();
    // A gradient that is bad: what its update makes of it comes of it.
    if (!observer.Ignores() && observer.bad_values.transient() != 0) observer.input_tracking.Arm();
  }
  observer.parameter_stats.OnOptimizerBegin(observer, optimizer, ClassOf(range_name),
                                            watches && !observer.Ignores());
  thread->optimizer_holds_inputs =
      !later && NeedsInputs(thread->optimizer_index) && !observer.Ignores();
  if (thread->optimizer_holds_inputs) observer.input_tracking.Hold();
}

void StepScope::RecordOptimizerBegin(Observer& observer, ThreadState* thread, const void* identity,
                                     const char* range_name,
                                     const canary::Gradients& gradients) noexcept {
  if (thread->told != nullptr) observer.SettlePoison();
  const uint32_t index = IndexOf(identity, range_name, observer.segment.Ensure());
  thread->optimizer_index = index;
  range_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(mutex_);
  gradients_ = gradients;
  counts_.Begin(index);
  newest_ = index;
}

bool StepScope::FoundInf() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return found_inf_;
}

canary::Gradients StepScope::GradientsAreAdded() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return gradients_;
}

// The first range tells whether the optimizer writes what only shows with inputs.
bool StepScope::NeedsInputs(uint32_t index) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_.begun(index) == 1 || fused_seen_.load(std::memory_order_relaxed);
}

void StepScope::OnOptimizerEnd(Observer& observer, ThreadState* thread) noexcept {
  const bool hold = thread->optimizer_holds_inputs;
  thread->optimizer_holds_inputs = false;
  const bool stopped = thread->optimizer_stopped;
  thread->optimizer_stopped = false;
  thread->optimizer_number_bad = false;
  given_finite_after_passes_plus_one = 0;
  if (hold) observer.input_tracking.Release();
  observer.parameter_stats.OnOptimizerEnd(observer, stopped);
  const bool checked = open_update.optimizer != nullptr;
  const bool after_off = checked && !stopped && observer.measuring.ReadsAfterStep();
  if (after_off) observer.measuring.RecordStepEnded();
  if (checked && !stopped && !observer.Ignores()) {
    canary::CheckUpdate(observer, thread, open_update.optimizer, open_update.range_name,
                        open_update.gradients);
  }
  open_update.optimizer = nullptr;
  if (!stopped) observer.canary_buffers.OnStepEnd(observer, thread);
  if (after_off) observer.measuring.ReadAfter(thread);
  RecordThreadTrains();
  // Between two updates nothing is followed at level canary.
  const bool unwatched =
      (checked && observer.level.asked() != wire::Level::kFull) ||
      (thread->optimizer_watches_ops && observer.input_tracking.EndWatchedRange());
  thread->optimizer_watches_ops = false;
  observer.plain_update_due.store(false, std::memory_order_relaxed);
  if (observer.gpu_events.On()) {
    return observer.gpu_events.EnqueueOptimizerEnd(observer, thread, stopped, unwatched);
  }
  RecordOptimizerEnd(observer, thread, stopped, unwatched);
}

void StepScope::RecordOptimizerEnd(Observer& observer, ThreadState* thread, bool stopped,
                                   bool ops_unwatched) noexcept {
  const uint32_t index = thread->optimizer_index;
  // The pass that ended with this update is closed only now: a closure runs it inside the range.
  observer.passes.Close(observer, thread);
  uint32_t class_name = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    class_name = counts_.class_name(index);
  }
  if (!observer.Poisoned() && observer.bad_values.size() != 0) {
    RecordUpdate(observer, thread, index, class_name, 0);
  }
  if (ops_unwatched) observer.level.ForgetBadValues(observer.bad_values);
  bool skipped = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // A fused optimizer under a GradScaler skips inside its kernel: its range is no step.
    skipped = gradients_.skipped || (found_inf_ && fused_seen_.load(std::memory_order_relaxed));
    if (!skipped && !stopped) counts_.Complete(index, &clocks_);
    clocks_.micro_passes = 0;
  }
  // The update of the scale publishes the step that was skipped.
  if (!skipped) Publish(observer, thread, index, false);
}

void StepScope::OnPlainUpdate(Observer& observer, ThreadState* thread) noexcept {
  observer.plain_update_due.store(false, std::memory_order_relaxed);
  observer.cuts.OnUpdate(observer, thread);
  RecordThreadTrains();
  if (observer.gpu_events.On()) return observer.gpu_events.EnqueuePlainUpdate(observer, thread);
  RecordPlainUpdate(observer, thread);
}

void StepScope::RecordPlainUpdate(Observer& observer, ThreadState* thread) noexcept {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (clocks_.optimizer_ranges != 0) return;  // an optimizer sets the pace
    ++clocks_.plain_updates;
    clocks_.micro_passes = 0;
  }
  Publish(observer, thread, 0, false);
}

void StepScope::OnPassReachedLeaf() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  ++clocks_.passes;
  ++clocks_.micro_passes;
}

void StepScope::ForgetScaler() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  found_inf_ = scale_known_ = false;
}

void StepScope::OnUnscale(bool found_inf) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  found_inf_ = found_inf_ || found_inf;
}

void StepScope::OnScaleUpdate(Observer& observer, ThreadState* thread,
                              const ScaleUpdate& update) noexcept {
  wire::ScalerRecord record{};
  bool skipped = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    skipped = found_inf_ || update.found_inf;
    found_inf_ = false;
    record.scale_before = scale_;
    record.scale_after = update.scale;
    record.flags = (skipped ? wire::ScalerRecord::kSkipped : 0u) |
                   (update.known && scale_known_ ? wire::ScalerRecord::kScaleKnown : 0u);
    skips_in_a_row_ = skipped ? skips_in_a_row_ + 1 : 0;
    record.skips_in_a_row = skips_in_a_row_;
    scale_ = update.scale;
    scale_known_ = update.known;
  }
  if (!skipped) return;
  observer.passes.Close(observer, thread);
  Emitter* emitter = observer.segment.Ensure();
  if (emitter != nullptr) {
    record.header =
        observer.records.MakeHeader(thread, *emitter, wire::RecordKind::kScaler, sizeof record);
    emitter->Emit(record.header);
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++clocks_.scaler_skips;
    clocks_.micro_passes = 0;
  }
  Publish(observer, thread, 0, true);
}

void StepScope::OnCell() noexcept {
  cell_began_ns_.store(MonotonicNs(), std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(mutex_);
  step_began_ns_ = 0;
}

void StepScope::EmitCell(Observer& observer, ThreadState* thread, uint64_t began_ns) noexcept {
  Emitter* emitter = observer.segment.emitter();
  if (emitter == nullptr || thread == nullptr) return;
  wire::LevelRecord record{};
  record.header =
      observer.records.MakeHeader(thread, *emitter, wire::RecordKind::kLevel, sizeof record);
  record.from = record.to = static_cast<uint8_t>(observer.level.asked());
  record.why = wire::kLevelWhyCell;
  record.full_every = observer.python->running_cell();
  record.overhead_percent = record.budget_percent = -1;
  record.control = began_ns;
  emitter->Emit(record.header);
}

void StepScope::RecordBadLoss(ValueRef loss) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bad_loss_.ticket == 0) bad_loss_ = loss;
}

ValueRef StepScope::BadLoss() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bad_loss_;
}

ValueRef StepScope::TakeBadLoss() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const ValueRef loss = bad_loss_;
  bad_loss_ = bad_result_ = {};
  return loss;
}

void StepScope::RecordBadResult(ValueRef result) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  bad_result_ = result;
}

ValueRef StepScope::BadResult() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bad_result_;
}

void StepScope::TakeTelemetry(Observer& observer, uint64_t now_ns,
                              wire::TelemetryEntry* into) noexcept {
  using wire::TelemetryEntry;
  TelemetryEntry& entry = *into;
  entry.time_ns = now_ns;
  entry.level = static_cast<uint32_t>(WatchedNow(observer));
  entry.loss = loss_.load(std::memory_order_relaxed);
  if (loss_known_.exchange(false, std::memory_order_relaxed)) entry.known |= TelemetryEntry::kLoss;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (step_began_ns_ != 0) {
    entry.step_ns = now_ns - step_began_ns_;
    entry.known |= TelemetryEntry::kStepTime;
  }
  step_began_ns_ = now_ns;
  entry.scale = scale_;
  if (scale_known_) entry.known |= TelemetryEntry::kScale;
  entry.gradient_norm = gradients_.norm;
  entry.gradients = gradients_.count;
  entry.gradients_missing = gradients_.missing;
  entry.gradients_zero = gradients_.zero;
  entry.gradients_bad = gradients_.bad;
  if (gradients_.known) entry.known |= TelemetryEntry::kGradients;
  if (gradients_.norm_known) entry.known |= TelemetryEntry::kGradientNorm;
  gradients_ = {};
}

void StepScope::Publish(Observer& observer, ThreadState* thread, uint32_t optimizer,
                        bool skipped) noexcept {
  observer.bad_values.Sweep(0);
  const uint32_t iteration = completed();
  marks_.iteration.store(iteration, std::memory_order_relaxed);
  observer.bad_values.Settle(iteration, kStepsUntilResident);
  observer.read_numbers.OnStep(observer, iteration);
  if (observer.bad_values.transient() == 0) observer.input_tracking.Disarm();
  observer.SettlePoison();
  Emitter* emitter = observer.segment.Ensure();
  if (emitter == nullptr) return;
  const ThreadCounters sum = ThreadStates::Sum();
  wire::StepEntry entry{};
  if (const uint64_t began_ns = cell_began_ns_.exchange(0, std::memory_order_relaxed);
      began_ns != 0) {
    EmitCell(observer, thread, began_ns);
    entry.flags |= wire::kStepBeginsCell;
  }
  const bool hidden = observer.level.TakeHidden();
  Measuring::Step measured;
  measured.off = observer.level.off_to_measure() || observer.measuring.TakeCutShort();
  measured.calm = !skipped && !hidden;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    entry.clocks = clocks_;
    entry.flags |= counts_.IndexOf(optimizer) << wire::kPlaceShift;
    if (!hidden) {
      const wire::Level watched = measured.off ? wire::Level::kIdle : WatchedNow(observer);
      ++steps_watched_[static_cast<int>(watched) % wire::kWatchedLevels];
    }
    // Where nothing was read of the gradients, the step before has the answer.
    measured.readable = gradients_.known && !gradients_.some_unseen && gradients_.on_gpu == 0 &&
                        gradients_.bad == 0;
  }
  entry.time_ns = MonotonicNs();
  wire::TelemetryEntry telemetry{};
  TakeTelemetry(observer, entry.time_ns, &telemetry);
  const double near_limit = observer.headroom.Take(&telemetry);
  if ((telemetry.known & wire::TelemetryEntry::kLoss) != 0) {
    entry.loss = telemetry.loss;
    entry.flags |= 1;
  }
  entry.ops_seen = sum.ops_seen;
  entry.tensors_checked = sum.tensors_checked;
  entry.bytes_checked = sum.bytes_checked;
  entry.values_bad = sum.values_bad;
  entry.optimizer = optimizer;
  entry.flags |= (skipped ? 2u : 0u) | (observer.Poisoned() ? 4u : 0u);
  emitter->PublishStep(entry, telemetry);
  // Without an optimizer's ranges nobody would ever choose again.
  using wire::TelemetryEntry;
  const bool chooses =
      entry.clocks.optimizer_ranges != 0 || observer.level.asked() == wire::Level::kLayer;
  const Suspicion::Step seen{.loss = telemetry.loss,
                             .gradient_norm = telemetry.gradient_norm,
                             .near_limit = near_limit,
                             .loss_known = (telemetry.known & TelemetryEntry::kLoss) != 0,
                             .norm_known = (telemetry.known & TelemetryEntry::kGradientNorm) != 0};
  if (chooses && !observer.Blind()) {
    observer.level.OnStep(
        thread, {.ns = (telemetry.known & TelemetryEntry::kStepTime) != 0 ? telemetry.step_ns : 0,
                 .watched = static_cast<wire::Level>(telemetry.level),
                 .kind = optimizer,
                 .seen = seen});
  }
  if (entry.clocks.optimizer_ranges != 0) {
    measured.time_ns = entry.time_ns;
    measured.clocks = entry.clocks;
    measured.seen = seen;
    observer.measuring.OnStep(thread, measured);
  }
  observer.PublishLive(wire::LiveState::kWatching);
  SegmentReport report;
  if (!emitter->KeepSegment(report) && report.message[0] != '\0') {
    observer.entry()->say(report.message);
  }
}

void StepScope::StepsWatched(uint64_t* steps) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::copy_n(steps_watched_, wire::kWatchedLevels, steps);
}

}  // namespace nanwatch
