// SPDX-License-Identifier: Apache-2.0
// How the results before an origin grew: from step to step, or all at once.
//
// Looks at each op of the forward at its place (op and layer), in the steps that the trail and the
// history hold, the origin's own step included. A place is told by the largest magnitude it left in
// a step. What an exponential left is left out: its argument tells how things grew. Where no result
// grew, the gradient norm and then the loss of the steps before are asked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

struct Growth {
  std::string what;  // "largest result of aten::addmm", "gradient norm", "loss"
  std::string op;    // "" of a gradient norm or a loss
  std::string layer;
  double usual = 0;            // the median of the steps before it grew
  std::vector<double> levels;  // of the steps in which it was large, the newest last; not empty
  bool in_last_step = false;   // the newest is of the origin's own step
};

// Of the places that grew by kGrowthMin or more the one that did so over most steps, among equals
// the one that grew most. A place that grew in the origin's own step alone says less than a
// gradient norm that grew before. Nothing where nothing grew, or where no earlier step is known.
inline constexpr double kGrowthMin = 100;
[[nodiscard]] std::optional<Growth> FindGrowth(const Incident& incident);

}  // namespace nanwatch
