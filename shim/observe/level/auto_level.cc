#include "shim/observe/level/auto_level.h"

#include <algorithm>
#include <cmath>

namespace nanwatch {
namespace {

using wire::Level;
using Why = wire::LevelRecord::Why;

// The first steps load code and warm caches.
constexpr uint64_t kWarmUp = 5;
// Then each way has its turn until it was seen so often.
constexpr uint32_t kSamplesMin = 12;
// One step in so many is used to look again at a way that the plan leaves out.
constexpr uint32_t kProbeEvery = 64;
// Of these probes so many are of the way that costs most, if the plan has no room for it.
constexpr uint32_t kDearProbeEvery = 24;
// So many times its own median, and so many times the largest of late, is far off: single large
// batches and the jitter of a loss near zero stay below, an explosion does not.
constexpr double kFarOffMedian = 32;
constexpr double kFarOffLargest = 4;
// After one suspicion so many steps pass before the next of its kind: what is far off may be the
// new usual, and of parameters that are bad for good there is nothing more to learn.
constexpr uint64_t kAlertPause = 512;
constexpr uint32_t kHistoryMin = 16;
// Of the largest number of its type; what is nearer is close to an overflow.
constexpr double kNearLimit = 0.125;
// A plan is told again when its share of full steps has changed by a quarter, at most so often.
constexpr uint64_t kTellEvery = 256;
// Medians of a few steps on a busy machine differ by so much without a reason.
constexpr double kCostMin = 1e-4;
// Medians take some thousand instructions: once costs are known, a plan is made every so often.
constexpr uint64_t kPlanAlways = 64;
constexpr uint64_t kPlanEvery = 16;
// What unwatched steps cost beside what is counted of them: caches that we take over, calls of
// Python's. Of a step of 0.55 ms half as much was counted as was seen from outside.
constexpr double kIdleFactor = 2;
// Of the budget this much is planned with: what is measured here is less than what is seen from
// outside (of a canary step of 0.55 ms 2.1 % and 3.1 %), and what is drawn may be more than its
// share.
constexpr double kPlanned = 0.75;
// And this much is always left to watching.
constexpr double kShareMin = 0.1;

}  // namespace

void AutoLevel::Recent::Add(double value) noexcept {
  values_[next_] = value;
  next_ = (next_ + 1) % kKept;
  count_ = std::min(count_ + 1, kKept);
}

double AutoLevel::Recent::Median() const noexcept {
  if (count_ == 0) return 0;
  std::array<double, kKept> sorted = values_;
  auto* const middle = sorted.begin() + count_ / 2;
  std::nth_element(sorted.begin(), middle, sorted.begin() + count_);
  return *middle;
}

double AutoLevel::Recent::Largest() const noexcept {
  return count_ == 0 ? 0 : *std::max_element(values_.begin(), values_.begin() + count_);
}

double AutoLevel::CostOf(const Way& way) const noexcept {
  const double bare = idle_.ns.Median();
  double cost = kCostMin;
  if (bare > 0 && way.ns.count() >= kSamplesMin && idle_.ns.count() >= kSamplesMin) {
    cost = std::max(cost, way.ns.Median() / bare - 1);
    if (way.after.count() >= kSamplesMin) cost += std::max(0.0, way.after.Median() / bare - 1);
  }
  if (way.own.count() != 0) cost = std::max(cost, way.own.Median() - idle_.own.Median());
  return cost;
}

void AutoLevel::Note(const Step& step) noexcept {
  if (step.ns != 0 && steps_ > kWarmUp && alert_left_ == 0) {
    const bool follows = step.watched == Level::kIdle && before_ != Level::kIdle;
    (follows ? Of(before_).after : Of(step.watched).ns).Add(static_cast<double>(step.ns));
  }
  before_ = step.watched;
  if (step.own_share >= 0) Of(step.watched).own.Add(step.own_share);
}

bool AutoLevel::IsSuspicious(const Step& step) noexcept {
  bool bad = false;
  bool far_off = false;
  const auto look = [&](bool known, double value, Recent* history) {
    if (!known) return;
    value = std::fabs(value);
    bad = bad || !std::isfinite(value);
    far_off = far_off ||
              (history->count() >= kHistoryMin && value > kFarOffLargest * history->Largest() &&
               value > kFarOffMedian * history->Median());
    if (std::isfinite(value)) history->Add(value);
  };
  look(step.loss_known, step.loss, &losses_);
  look(step.norm_known, step.gradient_norm, &norms_);
  // Only steps in full show it: what is far nearer than it ever was has been on its way for a
  // while.
  if (step.near_limit >= kNearLimit && step.near_limit > 2 * nearest_limit_) far_off = true;
  nearest_limit_ = std::max(nearest_limit_, step.near_limit);
  uint64_t* const last = bad ? &bad_at_ : &far_off_at_;
  if (!bad && !far_off) return false;
  if (*last != 0 && steps_ - *last < kAlertPause) return false;
  *last = steps_;
  return true;
}

void AutoLevel::Plan() noexcept {
  const double full = CostOf(full_);
  const double canary = CostOf(canary_);
  const double idle = kIdleFactor * idle_.own.Median();
  const double budget = std::max(kPlanned * budget_ - idle, budget_ * kShareMin);
  full_share_ = canary_share_ = 0;
  if (full <= budget) {
    full_share_ = 1;
  } else if (canary <= budget) {
    full_share_ = full > canary ? (budget - canary) / (full - canary) : 0;
    canary_share_ = 1 - full_share_;
  } else {
    canary_share_ = budget / canary;
  }
  overhead_ = idle + full_share_ * full + canary_share_ * canary;
}

bool AutoLevel::MustTellPlan() noexcept {
  if (std::min({idle_.ns.count(), canary_.ns.count(), full_.ns.count()}) < kSamplesMin)
    return false;
  const bool changed = told_full_share_ < 0 ||
                       std::fabs(full_share_ - told_full_share_) > 0.25 * told_full_share_ + 0.001;
  if (!changed || (told_at_ != 0 && steps_ - told_at_ < kTellEvery)) return false;
  told_full_share_ = full_share_;
  told_at_ = steps_;
  return true;
}

Level AutoLevel::Choose() noexcept {
  if (alert_left_ != 0) return Level::kFull;
  if (steps_ < kWarmUp) return Level::kCanary;
  // The way that was seen least, until all are known.
  const std::array<std::pair<uint32_t, Level>, 3> ways = {{{idle_.ns.count(), Level::kIdle},
                                                           {canary_.ns.count(), Level::kCanary},
                                                           {full_.ns.count(), Level::kFull}}};
  const auto least = std::min_element(ways.begin(), ways.end());
  if (least->first < kSamplesMin) return least->second;
  if (idle_again_) {
    idle_again_ = false;
    return Level::kIdle;
  }
  // Drawn, not counted: jobs have periods of their own (two optimizers in turn, a validation every
  // so many steps), and a way that always meets the same kind of step would be misjudged.
  if (Draw() < 1.0 / kProbeEvery) {
    ++probes_;
    const bool dear = full_share_ == 0;
    idle_again_ = probes_ % 3 == 0;
    if (probes_ % 3 == 2 && (!dear || probes_ % kDearProbeEvery == 2)) return Level::kFull;
    return probes_ % 3 == 0 ? Level::kIdle : Level::kCanary;
  }
  const double drawn = Draw();
  if (drawn < full_share_) return Level::kFull;
  return drawn < full_share_ + canary_share_ ? Level::kCanary : Level::kIdle;
}

// Of Knuth's linear congruential generator; the same in every run.
double AutoLevel::Draw() noexcept {
  draws_ = draws_ * 6364136223846793005u + 1442695040888963407u;
  return static_cast<double>(draws_ >> 11) * 0x1p-53;
}

AutoLevel::Next AutoLevel::OnStep(const Step& step) noexcept {
  Next next;
  ++steps_;
  Note(step);
  if (steps_ <= kPlanAlways || steps_ % kPlanEvery == 0) {
    Plan();
    next.tell = MustTellPlan();
    if (next.tell) next.why = Why::kBudget;
  }
  next.full_every =
      full_share_ > 0 ? static_cast<uint32_t>(std::lround(std::min(1e9, 1 / full_share_))) : 0;
  next.overhead_percent = 100 * overhead_;
  const bool was_alert = alert_left_ != 0;
  if (IsSuspicious(step)) {
    alert_left_ = kAlertSteps;
  } else if (was_alert) {
    --alert_left_;
  }
  if (was_alert != (alert_left_ != 0)) {
    next.tell = true;
    next.why = alert_left_ != 0 ? Why::kSuspicion : Why::kQuiet;
  }
  next.watched = Choose();
  return next;
}

}  // namespace nanwatch
