// SPDX-License-Identifier: Apache-2.0
// Data that is bad and that the forward has read is saved by autograd, and read again in backward.
// There nobody knows it by its name, and where code that nobody observes has written it, nor as what
// the forward has met: it looks like something else that came in.
#pragma once

#include <vector>

#include "daemon/correlate/origin.h"
#include "daemon/correlate/reach_event.h"
#include "daemon/correlate/step_clock.h"
#include "daemon/correlate/value_node.h"

namespace nanwatch {

// What came in nameless in a backward pass is taken for the first that came in nameless in forward
// in the same step and held the same values, in all that names an origin.
void TakeForSaved(const StepClock& clock, const std::vector<Origin>& origins,
                  std::vector<ValueNode>& nodes, std::vector<ReachEvent>& events,
                  std::vector<Sending>& sendings);

}  // namespace nanwatch
