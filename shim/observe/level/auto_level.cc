// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/level/auto_level.h"

#include <algorithm>
#include <cmath>
#include <utility>

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
// A plan is told again when its share of full steps has changed by a quarter, at most so often.
constexpr uint64_t kTellEvery = 256;
// Medians of a few steps on a busy machine differ by so much without a reason.
constexpr double kCostMin = 1e-4;
// Medians take some thousand instructions: once costs are known, a plan is made every so often.
constexpr uint64_t kPlanAlways = 64;
constexpr uint64_t kPlanEvery = 16;
// Of the budget this much is planned with: unwatched steps cost something, too, and what is drawn
// may be more than its share.
constexpr double kPlanned = 0.75;
// Unwatched steps of a kind that must have been seen before others are compared with them, and how
// many steps are let pass for that.
constexpr uint32_t kIdleMin = 3;
constexpr uint32_t kIdleFirstMax = 48;
// The figure is of so many steps.
constexpr double kLately = 1024;

// An interval that reaches so far below zero says nothing: checking takes time, and never saves it.
constexpr double kLowMin = -10;

// By how much all ratios may be off together, in percent: they are to the same few unwatched steps,
// so the largest of these, beside their median, bounds it.
template <typename IdleSteps>
double CommonError(const IdleSteps& kinds) {
  double error = 0;
  for (const auto& idle : kinds) {
    if (idle.count() < kIdleMin) continue;
    error = std::max(error, 100 * (idle.Largest() / idle.Median() - 1));
  }
  return error;
}

}  // namespace

double AutoLevel::CostOf(const Way& way) noexcept {
  if (way.ratio.count() < kSamplesMin) return kCostMin;
  double cost = std::max(kCostMin, way.ratio.Median() - 1);
  if (way.after.count() >= kSamplesMin) cost += std::max(0.0, way.after.Median() - 1);
  return cost;
}

void AutoLevel::CountSteps(Level watched) noexcept {
  (watched == Level::kIdle ? idle_steps_ : Of(watched).steps) += 1;
  if (idle_steps_ + canary_.steps + full_.steps < 2 * kLately) return;
  for (double* steps : {&idle_steps_, &canary_.steps, &full_.steps}) *steps /= 2;
}

void AutoLevel::Record(const Step& step) noexcept {
  const Level before = std::exchange(before_, step.watched);
  CountSteps(step.watched);
  if (step.ns == 0 || steps_ <= kWarmUp || alert_left_ != 0) return;
  const uint32_t kind = step.kind % kKinds;
  kinds_seen_ |= 1u << kind;
  const auto ns = static_cast<double>(step.ns);
  if (step.watched == Level::kIdle && before == Level::kIdle) {
    idle_ns_[kind].Add(ns);
    ++idle_count_;
    return;
  }
  if (idle_ns_[kind].count() < kIdleMin) return;
  const double ratio = ns / idle_ns_[kind].Median();
  const bool follows = step.watched == Level::kIdle;
  Way& way = Of(follows ? before : step.watched);
  (follows ? way.after : way.ratio).Add(ratio);
  (follows ? way.pairs_after : way.pairs).Add(ratio);
}

// Each way counts by its share of the steps. One that has no share need not be known.
PairedRatios::Figure AutoLevel::Read() const noexcept {
  const double steps = idle_steps_ + canary_.steps + full_.steps;
  PairedRatios::Figure all{.pairs = PairedRatios::kPairsMax};
  const double common = CommonError(idle_ns_);
  for (const Way* way : {&canary_, &full_}) {
    const double share = steps > 0 ? way->steps / steps : 0;
    if (share == 0) continue;
    const PairedRatios::Figure figure = way->pairs.Read();
    const PairedRatios::Figure after = way->pairs_after.Read();
    all.pairs = std::min(all.pairs, figure.pairs);
    all.median += share * (figure.median + after.median);
    const double together = share * common * (after.pairs != 0 ? 2 : 1);
    all.low += share * (figure.low + after.low) - together;
    all.high += share * (figure.high + after.high) + together;
  }
  return all.pairs != 0 && steps > 0 && all.low >= kLowMin ? all : PairedRatios::Figure{};
}

void AutoLevel::Plan() noexcept {
  const double full = CostOf(full_);
  const double canary = CostOf(canary_);
  const double budget = kPlanned * budget_;
  full_share_ = canary_share_ = 0;
  if (full <= budget) {
    full_share_ = 1;
  } else if (canary <= budget) {
    full_share_ = full > canary ? (budget - canary) / (full - canary) : 0;
    canary_share_ = 1 - full_share_;
  } else {
    canary_share_ = budget / canary;
  }
  overhead_ = full_share_ * full + canary_share_ * canary;
}

bool AutoLevel::PlanKeepsBudget() const noexcept {
  double at_most = 0;
  const double common = CommonError(idle_ns_);
  for (const auto& [share, way] :
       {std::pair{full_share_, &full_}, std::pair{canary_share_, &canary_}}) {
    if (share == 0) continue;
    const PairedRatios::Figure figure = way->pairs.Read();
    if (figure.pairs == 0) return false;
    const PairedRatios::Figure after = way->pairs_after.Read();
    at_most +=
        share * (figure.high + std::max(0.0, after.high) + common * (after.pairs != 0 ? 2 : 1));
  }
  return at_most <= budget_percent();
}

bool AutoLevel::MustEmitPlan() noexcept {
  if (std::min({idle_count_, canary_.ratio.count(), full_.ratio.count()}) < kSamplesMin)
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
  // What others are compared with comes first.
  for (uint32_t kind = 0; kind < kKinds && idle_count_ < kIdleFirstMax; ++kind) {
    const bool seen = kinds_seen_ == 0 ? kind == 0 : (kinds_seen_ >> kind & 1) != 0;
    if (seen && idle_ns_[kind].count() < kIdleMin) return Level::kIdle;
  }
  // The way that was seen least, until all are known.
  const std::array<std::pair<uint32_t, Level>, 3> ways = {{{idle_count_, Level::kIdle},
                                                           {canary_.ratio.count(), Level::kCanary},
                                                           {full_.ratio.count(), Level::kFull}}};
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
  Record(step);
  if (steps_ <= kPlanAlways || steps_ % kPlanEvery == 0) {
    Plan();
    next.tell = MustEmitPlan();
    if (next.tell) next.why = Why::kBudget;
  }
  next.full_every =
      full_share_ > 0 ? static_cast<uint32_t>(std::lround(std::min(1e9, 1 / full_share_))) : 0;
  const bool was_alert = alert_left_ != 0;
  if (suspicion_.IsRaisedBy(step.seen)) {
    alert_left_ = kAlertSteps;
  } else if (was_alert) {
    --alert_left_;
  }
  if (was_alert != (alert_left_ != 0)) {
    next.tell = true;
    next.why = alert_left_ != 0 ? Why::kSuspicion : Why::kQuiet;
  }
  if (next.tell && PlanKeepsBudget()) next.overhead_percent = 100 * overhead_;
  next.watched = Choose();
  return next;
}

}  // namespace nanwatch
