// SPDX-License-Identifier: Apache-2.0
// A loss that is not finite while parameters are bad comes of what made them so: the incident
// reached it, and lasts for as long. No record says so, because nothing is recorded of such steps.
#pragma once

#include <vector>

#include "daemon/correlate/origin.h"
#include "daemon/correlate/reach_event.h"
#include "daemon/correlate/step_clock.h"
#include "verdict.pb.h"

namespace nanwatch {

// The steps of the run's history, and of those read since.
[[nodiscard]] DeadSteps FindDeadSteps(const RunFacts& facts);

// Adds the first and the last to the incident whose bad parameters were the newest by then. `dead`
// must outlive the events.
void AddLossOfDead(const RunFacts& facts, const DeadSteps& dead, const StepClock& clock,
                   std::vector<ReachEvent>& events);

}  // namespace nanwatch
