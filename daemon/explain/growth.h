// SPDX-License-Identifier: Apache-2.0
// How the results before an origin grew: from step to step, or all at once.
//
// Follows each op of the forward at its site (op and layer), in the steps that the trail and the
// history hold, the origin's own step included. The level of a site in a step is the largest
// magnitude of its results. Results of an exponential are left out, because its argument shows the
// growth. If no result grew, the gradient norm and then the loss of the steps before are checked.
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

// Of the sites that grew by kGrowthMin or more, the one that did so over most steps; among equals
// the one that grew most. A site that grew only in the origin's own step says less than a gradient
// norm that grew before. Nothing if nothing grew, or if no earlier step is known.
inline constexpr double kGrowthMin = 100;
[[nodiscard]] std::optional<Growth> FindGrowth(const Incident& incident);

}  // namespace nanwatch
