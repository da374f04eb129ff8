// SPDX-License-Identifier: Apache-2.0
#include "daemon/watch/training_watch.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "daemon/watch/dead_steps.h"
#include "daemon/watch/headroom_watch.h"
#include "daemon/watch/level_series.h"
#include "daemon/watch/recent_steps.h"
#include "daemon/watch/step_cycles.h"
#include "daemon/watch/training_alarms.h"

namespace nanwatch {
namespace {

using step_flags::kParametersBad;
using step_flags::kSkipped;

// What norm and loss need when both rise: less than each alone.
constexpr double kTogether = 0.6;
// What fell without a loss to compare with has to fall further.
constexpr double kFallDecades = 3;
constexpr double kFallDecadesAlone = 4;
// Back within so much of what it left, for kCalmSteps: over.
constexpr double kCalmDecades = 0.5;

constexpr uint32_t kMissingSteps = 30;
constexpr uint32_t kZeroSteps = 20;

// A scaler starts too high on purpose: 65536 is halved some six times in the first updates of
// healthy runs. Later it is halved once in a while, one update of two thousand.
constexpr uint64_t kStartUpdates = 20;
constexpr int kSkipsAtStart = 8;
constexpr double kScaleAtStart = 256;
constexpr int kSkipsLater = 4;
constexpr uint64_t kSkipsWithin = 30;
constexpr uint64_t kScalerCalmUpdates = 100;

// ---- alarms

double Newest(const TrainingSeries& series) {
  return series.recent().empty() ? 0 : *series.recent().rbegin();
}

void AddNorm(const Departure& departure, TrainingAlarm& alarm) {
  auto& numbers = *alarm.mutable_numbers();
  numbers["gradient_norm"] = NormOfLevel(departure.level);
  numbers["gradient_norm_median"] = NormOfLevel(departure.usual.median);
  numbers["gradient_norm_spreads"] = departure.spreads();
  numbers["gradient_norm_steps"] = departure.usual.steps;
}

void AddLoss(const Departure& departure, const TrainingSeries& loss, TrainingAlarm& alarm) {
  auto& numbers = *alarm.mutable_numbers();
  numbers["loss"] = LossOfLevel(departure.level, loss);
  numbers["loss_median"] = LossOfLevel(departure.usual.median, loss);
  numbers["loss_spreads"] = departure.spreads();
  numbers["loss_steps"] = departure.usual.steps;
}

bool HasNorm(const StepSummary& step) {
  return step.has_gradient_norm() && std::isfinite(step.gradient_norm());
}

// What the text may say beside: of a loss that grows alone how the norm is, and whether several
// optimizers train at once, perhaps against each other.
void AddCircumstances(const StepSummary& step, const OptimizerHistory& seen,
                      const TrainingHistory& history, TrainingAlarm& alarm) {
  auto& numbers = *alarm.mutable_numbers();
  if (history.optimizers_size() > 1) numbers["optimizers"] = history.optimizers_size();
  if (alarm.id() != "loss-blowing-up" || !HasNorm(step)) return;
  numbers["gradient_norm"] = step.gradient_norm();
  if (IsHeld(seen.gradient_norm())) numbers["gradient_norm_held"] = step.gradient_norm();
}

// ---- divergence

// The other of the two rises as well while the first lasts: it is one warning, of both.
void Join(const StepSummary& step, const OptimizerHistory& seen, TrainingHistory& history) {
  TrainingAlarm* alarm = AlarmOf(seen.divergence(), history);
  if (alarm == nullptr || alarm->id() == "training-diverging") return;
  const bool by_loss = seen.divergence().by_loss();
  std::optional<Departure> other =
      FindRise(by_loss ? seen.gradient_norm() : seen.loss(), kTogether);
  if (!other && by_loss && HasNorm(step)) other = FindStepUp(seen.gradient_norm());
  if (!other) return;
  alarm->set_id("training-diverging");
  by_loss ? AddNorm(*other, *alarm) : AddLoss(*other, seen.loss(), *alarm);
  history.set_changes(history.changes() + 1);
}

void RaiseDivergence(const StepSummary& step, OptimizerHistory& seen, TrainingHistory& history) {
  std::optional<Departure> norm = FindRise(seen.gradient_norm(), kTogether);
  std::optional<Departure> loss = FindRise(seen.loss(), kTogether);
  const bool both = norm && loss;
  if (!both && norm) norm = FindRise(seen.gradient_norm());
  if (!both && loss) loss = FindRise(seen.loss());
  if (!norm && !loss) return;
  // The norm may leap in the very step in which the loss has grown for long enough.
  const std::optional<Departure> leap =
      norm || !HasNorm(step) ? std::nullopt : FindStepUp(seen.gradient_norm());
  const char* id = both || leap ? "training-diverging"
                   : norm       ? "gradient-exploding"
                                : "loss-blowing-up";
  OpenAlarm& open = *seen.mutable_divergence();
  TrainingAlarm* alarm = Raise(id, "divergence", MomentOf(step), history, open);
  open.set_by_loss(!norm);
  open.set_calm_bound((norm ? norm : loss)->reference + kCalmDecades);
  if (alarm == nullptr) return;
  if (norm || leap) AddNorm(norm ? *norm : *leap, *alarm);
  if (loss) AddLoss(*loss, seen.loss(), *alarm);
  AddCircumstances(step, seen, history, *alarm);
}

void WatchDivergence(const StepSummary& step, OptimizerHistory& seen, TrainingHistory& history) {
  if (!seen.has_divergence()) {
    RaiseDivergence(step, seen, history);
    return;
  }
  Join(step, seen, history);
  OpenAlarm& open = *seen.mutable_divergence();
  open.set_steps(open.steps() + 1);
  const TrainingSeries& series = open.by_loss() ? seen.loss() : seen.gradient_norm();
  if (!HasCalmed(Newest(series) < open.calm_bound(), open)) return;
  End(open, MomentOf(step), history);
  Forget(open.steps(), kCalmSteps, *seen.mutable_gradient_norm());
  Forget(open.steps(), kCalmSteps, *seen.mutable_loss());
  seen.clear_divergence();
}

// ---- vanishing

bool MostAreZero(const StepSummary& step) {
  return step.gradients() > 0 &&
         uint64_t{step.gradients_zero()} * 3 >= uint64_t{step.gradients()} * 2;
}

void RaiseVanishing(const StepSummary& step, OptimizerHistory& seen, TrainingHistory& history) {
  OpenAlarm& open = *seen.mutable_vanishing();
  const bool loss_known = seen.loss().recent_size() >= seen.gradient_norm().recent_size() / 2;
  const std::optional<Departure> fall =
      FindFall(seen.gradient_norm(), loss_known ? kFallDecades : kFallDecadesAlone);
  if (seen.zero_steps() >= kZeroSteps) {
    if (TrainingAlarm* alarm =
            Raise("gradients-zero", "vanishing", MomentOf(step), history, open)) {
      (*alarm->mutable_numbers())["gradients"] = step.gradients();
      (*alarm->mutable_numbers())["gradients_zero"] = step.gradients_zero();
      (*alarm->mutable_numbers())["steps_zero"] = seen.zero_steps();
    }
  } else if (fall && !HasConverged(seen.loss())) {
    TrainingAlarm* alarm = Raise("gradient-vanishing", "vanishing", MomentOf(step), history, open);
    open.set_calm_bound(fall->reference - kFallDecades + kCalmDecades);
    if (alarm != nullptr) AddNorm(*fall, *alarm);
  } else {
    seen.clear_vanishing();
  }
}

void WatchVanishing(const StepSummary& step, OptimizerHistory& seen, TrainingHistory& history) {
  seen.set_zero_steps(MostAreZero(step) ? seen.zero_steps() + 1 : 0);
  if (!seen.has_vanishing()) {
    // What comes down from a height has not vanished; where it comes to is seen when that is over.
    if (seen.has_divergence()) return;
    RaiseVanishing(step, seen, history);
    return;
  }
  OpenAlarm& open = *seen.mutable_vanishing();
  const bool is_calm = seen.zero_steps() == 0 &&
                       (open.calm_bound() == 0 || Newest(seen.gradient_norm()) > open.calm_bound());
  if (!HasCalmed(is_calm, open)) return;
  End(open, MomentOf(step), history);
  seen.clear_vanishing();
}

// ---- parameters without a gradient

void WatchMissing(const StepSummary& step, OptimizerHistory& seen, TrainingHistory& history) {
  const bool same = step.gradients_missing() == seen.gradients_missing();
  seen.set_missing_steps(same ? seen.missing_steps() + 1 : 1);
  seen.set_gradients_missing(step.gradients_missing());
  if (seen.has_missing() && !same) {
    End(seen.missing(), MomentOf(step), history);
    seen.clear_missing();
  }
  if (seen.has_missing() || step.gradients_missing() == 0 || seen.missing_steps() < kMissingSteps)
    return;
  TrainingAlarm* alarm = Raise("parameters-without-gradient", "missing", MomentOf(step), history,
                               *seen.mutable_missing());
  if (alarm == nullptr) return;
  alarm->set_severity("info");
  alarm->set_param(seen.missing_name());
  auto& numbers = *alarm->mutable_numbers();
  numbers["gradients_missing"] = step.gradients_missing();
  numbers["parameters"] = uint64_t{step.gradients()} + step.gradients_missing();
  numbers["steps_missing"] = seen.missing_steps();
}

// ---- the scaler

void NoteSkip(ScalerHistory& scaler) {
  scaler.add_skips(scaler.updates());
  if (scaler.skips_size() > kSkipsAtStart) scaler.mutable_skips()->erase(scaler.skips().begin());
}

bool IsSinking(const ScalerHistory& scaler) {
  if (scaler.scale() > 0 && scaler.scale() < 1 && scaler.first_scale() >= 1) return true;
  const bool at_start = scaler.applied() < kStartUpdates;
  const int count = at_start ? kSkipsAtStart : kSkipsLater;
  if (at_start && scaler.scale() > kScaleAtStart) return false;
  if (scaler.skips_size() < count) return false;
  return scaler.updates() - scaler.skips(scaler.skips_size() - count) < kSkipsWithin;
}

uint64_t SkipsWithin(const ScalerHistory& scaler) {
  return static_cast<uint64_t>(
      std::count_if(scaler.skips().begin(), scaler.skips().end(),
                    [&](uint64_t skip) { return scaler.updates() - skip < kSkipsWithin; }));
}

void WatchScaler(const StepSummary& step, TrainingHistory& history) {
  ScalerHistory& scaler = *history.mutable_scaler();
  const bool skipped = (step.flags() & kSkipped) != 0;
  if (!step.has_scale() && !skipped && scaler.scale() == 0) return;
  scaler.set_updates(scaler.updates() + 1);
  if (step.has_scale() && step.scale() >= 0 && std::isfinite(step.scale())) {
    if (scaler.first_scale() == 0) scaler.set_first_scale(step.scale());
    scaler.set_scale(step.scale());
  }
  skipped ? NoteSkip(scaler) : scaler.set_applied(scaler.applied() + 1);
  if (!scaler.has_sinking()) {
    if (!skipped || !IsSinking(scaler)) return;
    TrainingAlarm* alarm =
        Raise("scaler-sinking", "scaler", MomentOf(step), history, *scaler.mutable_sinking());
    if (alarm == nullptr) return;
    auto& numbers = *alarm->mutable_numbers();
    numbers["scale"] = scaler.scale();
    numbers["scale_first"] = scaler.first_scale();
    numbers["skips"] = static_cast<double>(SkipsWithin(scaler));
    numbers["skips_within"] = static_cast<double>(std::min(kSkipsWithin, scaler.updates()));
    return;
  }
  OpenAlarm& open = *scaler.mutable_sinking();
  open.set_calm_steps(skipped ? 0 : open.calm_steps() + 1);
  if (open.calm_steps() < kScalerCalmUpdates) return;
  End(open, MomentOf(step), history);
  scaler.clear_sinking();
}

}  // namespace

void Watch(const StepSummary& step, TrainingHistory& history) {
  if (step.index() < history.next_index()) return;
  history.set_next_index(step.index() + 1);
  FoldStep(step.clocks(), TraitsOf(step), *history.mutable_cycles());
  FoldDeadStep(step, history);
  // Early is over, and what is read of bad parameters is no training.
  if ((step.flags() & kParametersBad) != 0) return;
  FoldRecentStep(step, history);
  WatchHeadroom(step, history);
  WatchScaler(step, history);
  if ((step.flags() & kSkipped) != 0) return;
  OptimizerHistory* seen = HistoryOfOptimizer(step.optimizer(), history);
  if (seen == nullptr) return;
  const bool has_norm = HasNorm(step);
  const bool has_loss = step.has_loss() && std::isfinite(step.loss());
  if (has_norm) PushNorm(step.gradient_norm(), *seen->mutable_gradient_norm());
  if (has_loss) PushLoss(step.loss(), *seen->mutable_loss());
  if (has_norm || has_loss) WatchDivergence(step, *seen, history);
  if (step.gradients() == 0 && step.gradients_missing() == 0) return;
  if (has_norm) WatchVanishing(step, *seen, history);
  WatchMissing(step, *seen, history);
}

}  // namespace nanwatch
