// SPDX-License-Identifier: Apache-2.0
#include "daemon/watch/level_series.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

namespace nanwatch {
namespace {

// Below the least number that float32 can hold, 1.4e-45.
constexpr double kNoLevel = -46;
// A level has lasted when the median of so many steps was as high.
constexpr size_t kLastingSteps = 5;
constexpr size_t kUnitSteps = 5;
constexpr size_t kFallenSteps = 20;
constexpr size_t kBeforeFallMin = 10;
// Runs on one fixed batch have next to no noise; what is unusual needs some size all the same.
constexpr double kSpreadMin = 0.05;
constexpr double kDeviationToSpread = 1.4826;
constexpr double kSpreadsAway = 6;
// Growth of each step begins above what lasted: below, it would be noise that a jump follows.
constexpr double kFirstOfGrowth = 0.3;
constexpr double kSpreadsGrown = 3;
constexpr double kConvergedOfStart = 1e-3;
constexpr double kConvergedOfBefore = 0.5;

constexpr double kStepUpDecades = 1;
constexpr size_t kHeldSteps = 5;
constexpr double kHeldDecades = 0.0005;  // a tenth of a percent

// `high_steps` in a row are `decades` above every level that lasted until `apart_steps` ago, and
// grow by `growth` among themselves. The time between is what growth takes: 5 % a step crosses a
// decade in 47 steps. Where each step is higher than the one before, it is enough that the newest
// is so high: deep networks end a growth of 1.5 a step with two steps of 1e3 and 1e14.
struct Rule {
  size_t high_steps;
  size_t apart_steps;
  double decades;
  double growth;
  bool each_grows = false;
};
constexpr std::array<Rule, 5> kRules = {{{2, 4, 3.0, 0.3},
                                         {3, 8, 2.0, 0.3},
                                         {6, 24, 1.3, 0.3},
                                         {16, 96, 1.0, 0.2},
                                         {7, 24, 1.3, 0.6, /*each_grows=*/true}}};

using Levels = std::span<const double>;

Levels Recent(const TrainingSeries& series) {
  return {series.recent().data(), static_cast<size_t>(series.recent_size())};
}

double Median(Levels levels) {
  std::vector<double> sorted(levels.begin(), levels.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  if (sorted.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(sorted.begin(), middle)) / 2;
}

double LowTenth(Levels levels) {
  std::vector<double> sorted(levels.begin(), levels.end());
  const auto tenth = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 10);
  std::nth_element(sorted.begin(), tenth, sorted.end());
  return *tenth;
}

double Spread(Levels levels, double median) {
  std::vector<double> off;
  for (const double level : levels) off.push_back(std::abs(level - median));
  return kDeviationToSpread * Median(off);
}

// Of the differences from step to step: a trend is no noise.
double SpreadOfSteps(Levels levels) {
  if (levels.size() < 3) return kSpreadMin;
  std::vector<double> differences;
  for (size_t i = 1; i < levels.size(); ++i) differences.push_back(levels[i] - levels[i - 1]);
  return Spread(differences, Median(differences)) / std::sqrt(2.0);
}

Usual UsualOf(Levels before) {
  const Levels window =
      before.last(std::min<size_t>(before.size(), static_cast<size_t>(kUsualSteps)));
  Usual usual;
  usual.steps = static_cast<int>(window.size());
  usual.median = Median(window);
  usual.spread =
      std::max(kSpreadMin, std::min(Spread(window, usual.median), SpreadOfSteps(window)));
  return usual;
}

double LastingPeak(Levels levels, std::optional<double> older) {
  double peak = older.value_or(kNoLevel);
  for (size_t i = kLastingSteps; i <= levels.size(); ++i)
    peak = std::max(peak, Median(levels.subspan(i - kLastingSteps, kLastingSteps)));
  return peak;
}

// While a run is young, its first steps are what there is to compare with.
std::optional<double> PeakBefore(const TrainingSeries& series, const Rule& rule) {
  const Levels recent = Recent(series);
  const bool young = recent.size() < rule.apart_steps + kLastingSteps;
  if (young && recent.size() < rule.high_steps + kLastingSteps) return std::nullopt;
  const size_t count = young ? kLastingSteps : recent.size() - rule.apart_steps;
  return LastingPeak(recent.first(count),
                     series.has_peak() ? std::optional(series.peak()) : std::nullopt);
}

// From the first to the last third of what is high, so that one step does not decide.
double Growth(Levels high) {
  const size_t third = std::max<size_t>(1, high.size() / 3);
  return Median(high.last(third)) - Median(high.first(third));
}

// What is left of the growth without its largest step, so that one jump does not make it; 0 when
// not each step grows.
double GrowthOfEach(Levels high) {
  double largest = 0;
  for (size_t i = 1; i < high.size(); ++i) {
    if (high[i] <= high[i - 1]) return 0;
    largest = std::max(largest, high[i] - high[i - 1]);
  }
  return high.back() - high.front() - largest;
}

std::optional<Departure> FindRise(const TrainingSeries& series, const Rule& rule, double ease) {
  const Levels recent = Recent(series);
  if (recent.size() < rule.high_steps + kLastingSteps) return std::nullopt;
  const Levels high = recent.last(rule.high_steps);
  const double growth = rule.each_grows ? GrowthOfEach(high) : Growth(high);
  if (growth < rule.growth) return std::nullopt;
  const std::optional<double> peak = PeakBefore(series, rule);
  if (!peak) return std::nullopt;
  if (rule.each_grows && high.front() - *peak < kFirstOfGrowth) return std::nullopt;
  const double reached =
      rule.each_grows ? high.back() : *std::min_element(high.begin(), high.end());
  if (reached - *peak < ease * rule.decades) return std::nullopt;
  Departure rise;
  rise.level = high.back();
  rise.reference = *peak;
  rise.usual = UsualOf(recent.first(recent.size() - rule.high_steps));
  if (growth < kSpreadsGrown * rise.usual.spread) return std::nullopt;
  if (reached - *peak < kSpreadsAway * rise.usual.spread) return std::nullopt;
  return rise;
}

void Push(double level, TrainingSeries& series) {
  series.add_recent(level);
  series.set_count(series.count() + 1);
  if (series.recent_size() <= kSeriesRecentMax) return;
  series.set_peak(LastingPeak(Recent(series).first(kLastingSteps),
                              series.has_peak() ? std::optional(series.peak()) : std::nullopt));
  series.mutable_recent()->erase(series.recent().begin());
}

double LossLevel(double loss, double unit) { return std::asinh(loss / unit) / std::log(10.0); }

double MedianLoss(Levels levels, const TrainingSeries& series) {
  return LossOfLevel(Median(levels), series);
}

}  // namespace

void PushNorm(double norm, TrainingSeries& series) {
  if (!std::isfinite(norm) || norm < 0) return;
  Push(norm == 0 ? kNoLevel : std::max(kNoLevel, std::log10(norm)), series);
}

void PushLoss(double loss, TrainingSeries& series) {
  if (!std::isfinite(loss)) return;
  if (series.has_unit()) {
    Push(LossLevel(loss, series.unit()), series);
    return;
  }
  if (loss != 0) series.add_first(loss);
  if (static_cast<size_t>(series.first_size()) < kUnitSteps) return;
  std::vector<double> magnitudes;
  for (const double first : series.first()) magnitudes.push_back(std::abs(first));
  series.set_unit(std::max(Median(magnitudes), std::numeric_limits<double>::min()));
  for (const double first : series.first()) Push(LossLevel(first, series.unit()), series);
  series.clear_first();
}

void Forget(uint32_t newest, uint32_t kept, TrainingSeries& series) {
  const auto size = static_cast<uint32_t>(series.recent_size());
  const uint32_t first = size - std::min(size, newest);
  const uint32_t last = size - std::min(size, kept);
  if (first >= last) return;
  series.mutable_recent()->erase(series.recent().begin() + first, series.recent().begin() + last);
}

double NormOfLevel(double level) { return level <= kNoLevel ? 0 : std::pow(10.0, level); }

double LossOfLevel(double level, const TrainingSeries& series) {
  return series.unit() * std::sinh(level * std::log(10.0));
}

std::optional<Departure> FindRise(const TrainingSeries& series, double ease) {
  for (const Rule& rule : kRules) {
    if (std::optional<Departure> rise = FindRise(series, rule, ease)) return rise;
  }
  return std::nullopt;
}

std::optional<Departure> FindStepUp(const TrainingSeries& series) {
  const Levels recent = Recent(series);
  if (recent.size() <= kLastingSteps) return std::nullopt;
  Departure up;
  up.level = recent.back();
  up.usual = UsualOf(recent.first(recent.size() - 1));
  up.reference = up.usual.median;
  const double above = up.level - up.usual.median;
  if (above < kStepUpDecades || above < kSpreadsAway * up.usual.spread) return std::nullopt;
  return up;
}

bool IsHeld(const TrainingSeries& series) {
  const Levels recent = Recent(series);
  if (recent.size() < kHeldSteps) return false;
  const auto [low, high] = std::minmax_element(recent.end() - kHeldSteps, recent.end());
  return *low > kNoLevel && *high - *low < kHeldDecades;
}

std::optional<Departure> FindFall(const TrainingSeries& series, double decades) {
  const Levels recent = Recent(series);
  if (recent.size() < kFallenSteps + kBeforeFallMin) return std::nullopt;
  const Levels low = recent.last(kFallenSteps);
  const double highest = *std::max_element(low.begin(), low.end());
  const Levels before = recent.first(recent.size() - kFallenSteps);
  // Cheap, and true of nearly every step.
  if (*std::max_element(before.begin(), before.end()) - highest < decades) return std::nullopt;
  // A level that comes back from a height to where it was has not fallen.
  if (LowTenth(before) - highest < decades / 2) return std::nullopt;
  Departure fall;
  fall.level = low.back();
  fall.usual = UsualOf(before);
  fall.reference = fall.usual.median;
  const double spread = std::max(fall.usual.spread, Spread(before, fall.usual.median));
  if (fall.usual.median - highest < std::max(decades, kSpreadsAway * spread)) return std::nullopt;
  return fall;
}

bool HasConverged(const TrainingSeries& loss) {
  const Levels recent = Recent(loss);
  if (recent.size() < kFallenSteps + kBeforeFallMin) return false;
  const double now = MedianLoss(recent.last(kFallenSteps), loss);
  const double before = MedianLoss(recent.first(recent.size() - kFallenSteps), loss);
  return std::abs(now) < kConvergedOfStart * loss.unit() ||
         (before > 0 && now < kConvergedOfBefore * before);
}

}  // namespace nanwatch
