// SPDX-License-Identifier: Apache-2.0
// Early warnings: what a run's steps look like before any value is non-finite.
//
//   family       ids                                                      severity
//   divergence   gradient-exploding, loss-blowing-up, training-diverging  warning
//   vanishing    gradient-vanishing, gradients-zero                       warning
//   scaler       scaler-sinking                                           warning
//   missing      parameters-without-gradient                              info
//   headroom     activation-overflow-ahead (headroom_watch.h)             warning
//   (and those of stats_watch.h, of parameters one by one)
//
// A warning of a family is raised once while it lasts; where gradient and loss both diverge, it is
// one. Each optimizer is watched by itself, because those of a GAN have losses of their own; the
// scaler and the number of warnings are the run's.
//
// A pure fold: the daemon does it at every commit and keeps its state beside the steps, so that a
// daemon started later, and a report, go on from there and get the same. Computing it anew from the
// stored steps would not be the same, because those of long ago are thinned out. Bounded: about 2
// KiB an optimizer, beside the names of what stats_watch.h follows; about 5 us a step. Steps come
// from a segment, so nothing in them is trusted.
#pragma once

#include "daemon/watch/stats_watch.h"
#include "daemon/watch/training_alarms.h"
#include "statistics.pb.h"

namespace nanwatch {

// Goes on with `step`. One that was seen already (by its index) changes nothing.
void Watch(const StepSummary& step, TrainingHistory& history);

// The same for steps and snapshots in the order in which they came about. Each list is a
// std::vector or a repeated field, in its own order.
template <typename Steps, typename Snapshots>
void WatchAll(const Steps& steps, const Snapshots& snapshots, TrainingHistory& history) {
  auto next = snapshots.begin();
  for (const StepSummary& step : steps) {
    for (; next != snapshots.end() && next->time_ns() <= step.time_ns(); ++next)
      Watch(*next, history);
    Watch(step, history);
  }
  for (; next != snapshots.end(); ++next) Watch(*next, history);
}

}  // namespace nanwatch
