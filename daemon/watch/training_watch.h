// Early warnings: what a run's steps look like before any value is non-finite.
//
//   family       ids                                                      severity
//   divergence   gradient-exploding, loss-blowing-up, training-diverging  warning
//   vanishing    gradient-vanishing, gradients-zero                       warning
//   scaler       scaler-sinking                                           warning
//   missing      parameters-without-gradient                              info
//
// A warning of a family is raised once while it lasts; where gradient and loss both diverge, it is
// one. Each optimizer is watched by itself, because those of a GAN have losses of their own; the
// scaler and the number of warnings are the run's.
//
// A pure fold: the daemon does it at every commit and keeps its state beside the steps, so that a
// daemon started later, and a report, go on from there and get the same. Computing it anew from the
// stored steps would not be the same, because those of long ago are thinned out. Bounded: about 2
// KiB an optimizer, about 5 us a step. Steps come from a segment, so nothing of them is believed.
#pragma once

#include "verdict.pb.h"

namespace nanwatch {

inline constexpr int kWatchedOptimizersMax = 8;
inline constexpr int kAlarmsMax = 32;

// Goes on with `step`. One that was seen already (by its index) changes nothing.
void Watch(const StepSummary& step, TrainingHistory& history);

}  // namespace nanwatch
