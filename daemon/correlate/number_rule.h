// SPDX-License-Identifier: Apache-2.0
// A number of Python's that is bad, and that a loop computes with for one tensor after the other:
// gradients that are scaled, an average that decays. Of the first of these ops nobody has asked what
// it was given, and so it seems to have made the bad value of finite ones.
#pragma once

#include <vector>

#include "daemon/correlate/origin.h"
#include "daemon/correlate/reach_event.h"
#include "daemon/correlate/step_clock.h"
#include "daemon/correlate/value_node.h"

namespace nanwatch {

// Such an op takes the class of those that follow it in the same step and line, and they become its
// own in all that names an origin.
void TakeForNumber(const StepClock& clock, std::vector<Origin>& origins,
                   std::vector<ValueNode>& nodes, std::vector<ReachEvent>& events,
                   std::vector<Sending>& sendings);

}  // namespace nanwatch
