// SPDX-License-Identifier: Apache-2.0
// What was stored of a run's steps, one point a step, as pages and exports show it.
//
// Pure, no state, safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

struct StepPoint {
  int64_t step = -1;     // completed before it, as in the verdict document; -1 unknown
  int64_t x = 0;         // where it lies on an axis: never smaller than that of the point before
  uint64_t time_ns = 0;  // CLOCK_MONOTONIC, when it ended
  std::optional<double> loss;
  std::optional<double> gradient_norm;
  std::optional<double> scale;
  std::optional<double> learning_rate;  // of the optimizer's first group
  std::optional<double> overhead;       // by which checks made steps longer until then; 0.01 is 1 %
  std::optional<double> seconds;        // since the step before
  // The forward result that came nearest to the limit of its type, if within a 64th of it.
  std::optional<double> limit_share;
  std::string nearest_layer;
  std::string level;        // in force when it ended
  bool non_finite = false;  // an op wrote a non-finite value in it, also a harmless one
  bool bad = false;         // and its loss, a gradient or a parameter was not finite
  bool skipped = false;     // by a GradScaler
};

struct RunSeries {
  std::string run;
  int rank = 0;
  std::vector<StepPoint> points;  // oldest first
};

// `steps`: everything stored of the run of `facts`, by index. Where several optimizers take steps
// of one cycle, each has a point.
[[nodiscard]] RunSeries SeriesOf(const RunFacts& facts, const std::vector<StepSummary>& steps);

}  // namespace nanwatch
