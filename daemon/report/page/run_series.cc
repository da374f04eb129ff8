// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/page/run_series.h"

#include <cmath>

#include "daemon/correlate/step_clock.h"
#include "daemon/correlate/wire_names.h"
#include "daemon/explain/element_types.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/watch/training_alarms.h"

namespace nanwatch {
namespace {

template <typename Has, typename Get>
std::optional<double> Known(const StepSummary& step, Has has, Get get) {
  if (!(step.*has)()) return std::nullopt;
  return (step.*get)();
}

// As the ops of the step saw it: the summary is written when it has been counted.
StepReading ReadingOf(const StepSummary& step, const StepClock& clock) {
  return clock.Read(MomentOf(step).clocks, step.time_ns());
}

bool IsBad(const StepSummary& step) {
  return (step.has_loss() && !std::isfinite(step.loss())) || step.gradients_bad() > 0 ||
         (step.has_gradient_norm() && !std::isfinite(step.gradient_norm())) ||
         (step.flags() & step_flags::kParametersBad) != 0;
}

StepPoint PointOf(const StepSummary& step, const StepReading& read, uint64_t bad_before) {
  StepPoint point;
  point.skipped = (step.flags() & step_flags::kSkipped) != 0;
  point.step = read.step;
  point.time_ns = step.time_ns();
  point.loss = Known(step, &StepSummary::has_loss, &StepSummary::loss);
  point.gradient_norm = Known(step, &StepSummary::has_gradient_norm, &StepSummary::gradient_norm);
  point.scale = Known(step, &StepSummary::has_scale, &StepSummary::scale);
  point.learning_rate = Known(step, &StepSummary::has_learning_rate, &StepSummary::learning_rate);
  if (step.has_overhead_percent()) point.overhead = step.overhead_percent() / 100;
  point.seconds = Known(step, &StepSummary::has_seconds, &StepSummary::seconds);
  if (step.has_near_largest()) {
    const std::optional<double> limit = LargestOf(ElementTypeName(step.near_type()));
    if (limit) point.limit_share = step.near_largest() / *limit;
    point.nearest_layer = step.near_layer();
  }
  point.level = LevelName(step.level());
  point.non_finite = step.values_bad() > bad_before;
  point.bad = IsBad(step);
  return point;
}

// Where the steps of a process are known throughout, they are its axis; else the entries are.
void Place(const std::vector<StepSummary>& steps, const StepClock& clock, RunSeries& series) {
  bool all_known = true;
  int64_t last = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const StepReading read = ReadingOf(steps[i], clock);
    const int64_t x = read.iteration_of_run >= 0 ? read.iteration_of_run : read.iteration;
    all_known = all_known && x >= last;
    last = x;
    series.points[i].x = x;
  }
  if (all_known) return;
  for (size_t i = 0; i < steps.size(); ++i)
    series.points[i].x = static_cast<int64_t>(steps[i].index());
}

}  // namespace

RunSeries SeriesOf(const RunFacts& facts, const std::vector<StepSummary>& steps) {
  RunSeries series;
  series.run = RunId(facts.run());
  series.rank = facts.run().rank();
  const StepClock clock(facts);
  uint64_t bad = steps.empty() || steps.front().index() == 0 ? 0 : steps.front().values_bad();
  for (const StepSummary& step : steps) {
    series.points.push_back(PointOf(step, ReadingOf(step, clock), bad));
    bad = step.values_bad();
  }
  Place(steps, clock, series);
  return series;
}

}  // namespace nanwatch
