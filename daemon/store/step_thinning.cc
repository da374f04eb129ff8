// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/step_thinning.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>

namespace nanwatch {
namespace {

using Steps = std::span<const StepSummary>;
using Kept = std::array<bool, kThinnedTogether>;

struct Figure {
  bool (StepSummary::*is_known)() const;
  double (StepSummary::*value)() const;
};
constexpr Figure kFigures[] = {
    {&StepSummary::has_loss, &StepSummary::loss},
    {&StepSummary::has_gradient_norm, &StepSummary::gradient_norm},
    {&StepSummary::has_scale, &StepSummary::scale},
    {&StepSummary::has_learning_rate, &StepSummary::learning_rate},
    {&StepSummary::has_seconds, &StepSummary::seconds},
    {&StepSummary::has_overhead_percent, &StepSummary::overhead_percent},
    {&StepSummary::has_near_largest, &StepSummary::near_largest},
};

// Of equal ones the first, which stays if all are equal.
void KeepPeaks(Steps group, const Figure& figure, Kept& kept) {
  std::optional<size_t> lowest, highest, not_finite;
  const auto value = [&](size_t i) { return (group[i].*figure.value)(); };
  for (size_t i = 0; i < group.size(); ++i) {
    if (!(group[i].*figure.is_known)()) continue;
    if (!std::isfinite(value(i))) {
      if (!not_finite) not_finite = i;
      continue;
    }
    if (!lowest || value(i) < value(*lowest)) lowest = i;
    if (!highest || value(i) > value(*highest)) highest = i;
  }
  for (const std::optional<size_t>& place : {lowest, highest, not_finite}) {
    if (place) kept[*place] = true;
  }
}

template <typename Says>
void KeepFirst(Steps group, Says says, Kept& kept) {
  const auto first = std::find_if(group.begin(), group.end(), says);
  if (first != group.end()) kept[static_cast<size_t>(first - group.begin())] = true;
}

}  // namespace

std::vector<size_t> StepsToDrop(const std::vector<StepSummary>& steps) {
  std::vector<size_t> dropped;
  for (size_t from = 0; from < steps.size(); from += kThinnedTogether) {
    const Steps group = Steps(steps).subspan(from, std::min(kThinnedTogether, steps.size() - from));
    Kept kept = {};
    for (size_t i = 0; i < group.size(); i += 2) kept[i] = true;
    for (const Figure& figure : kFigures) KeepPeaks(group, figure, kept);
    KeepFirst(
        group, [](const StepSummary& step) { return step.gradients_bad() > 0; }, kept);
    KeepFirst(
        group, [&](const StepSummary& step) { return step.flags() != group[0].flags(); }, kept);
    for (size_t i = 0; i < group.size(); ++i) {
      if (!kept[i]) dropped.push_back(from + i);
    }
  }
  return dropped;
}

}  // namespace nanwatch
