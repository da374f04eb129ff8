// SPDX-License-Identifier: Apache-2.0
// The loss after the weights have died; nothing else is recorded of such steps.
//
// A pure fold, of a message of bounded size. Only the first such time of a run is kept.
#pragma once

#include "statistics.pb.h"

namespace nanwatch {

void FoldDeadStep(const StepSummary& step, TrainingHistory& history);

}  // namespace nanwatch
