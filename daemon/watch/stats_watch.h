// SPDX-License-Identifier: Apache-2.0
// Early warnings about single parameters, from the snapshots that a job records every so many
// steps.
//
//   family      id                        raised when
//   epsilon     epsilon-lost              the eps of one of torch's adaptive optimizers is 0 in the
//                                         type of its state
//   dead        dead-units                a layer's gradients are zero in 95 % of all elements or
//                                         more, those of others are not
//   update      update-too-large          updates of more than 0.1 of the weights in half of all
//                                         matrices, or of 0.3 in one
//   layer       gradient-vanishing-layer  a matrix gets a gradient of less than 1e-6 of another's
//
// All are of severity `warning`, and all but the first must show in several snapshots in a row that
// lie some steps apart: a single step is full of healthy exceptions (zero-initialised layers, an
// expert that nothing was routed to). Each is raised once while it lasts, for each optimizer.
//
// Judged by matrices alone (two dimensions or more) are updates and vanishing: biases and scales
// begin at zero, where every update is a large one.
//
// A pure fold, like training_watch.h. Nothing in a snapshot is trusted.
#pragma once

#include "statistics.pb.h"

namespace nanwatch {

// Layers and parameters with a streak that are remembered for each optimizer.
inline constexpr int kStreaksMax = 64;

// Goes on with `snapshot`. One that was seen already (by its number) changes nothing.
void Watch(const StatsSnapshot& snapshot, TrainingHistory& history);

}  // namespace nanwatch
