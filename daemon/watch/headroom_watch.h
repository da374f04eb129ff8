// SPDX-License-Identifier: Apache-2.0
// An overflow ahead: the largest result of a forward op comes within a factor of 8 of the largest
// number of its type, and is growing.
//
//   family     id                         severity
//   headroom   activation-overflow-ahead  warning
//
// Large activations alone are no warning: some models live with them. Growing means that the last
// three steps rise, to more than half above all that was seen before them; or that the usual of the
// last steps is twice what it was 50 steps before.
//
// Only steps at level full have these numbers. A pure fold, like training_watch.h, of bounded size.
#pragma once

#include "statistics.pb.h"

namespace nanwatch {

void WatchHeadroom(const StepSummary& step, TrainingHistory& history);

}  // namespace nanwatch
