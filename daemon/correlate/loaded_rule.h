// SPDX-License-Identifier: Apache-2.0
// Parameters and buffers that were bad from the beginning, and that an op has carried on before any
// module was called: a checkpoint's tensors are copied into the model, or broadcast to the other
// ranks, when nobody knows yet what they are.
#pragma once

#include <vector>

#include "daemon/correlate/origin.h"
#include "daemon/correlate/reach_event.h"
#include "daemon/correlate/step_clock.h"
#include "daemon/correlate/value_node.h"

namespace nanwatch {

// What such an op had no name for is taken for the first of them that was then found bad, in all
// that names an origin. Nothing changes where none was.
void TakeForLoaded(const StepClock& clock, const std::vector<Origin>& origins,
                   std::vector<ValueNode>& nodes, std::vector<ReachEvent>& events,
                   std::vector<Sending>& sendings);

// Likewise behind the first training of a process, where the op is known to have written the
// parameter: what came in becomes that parameter, met where it was first read.
void TakeForWritten(std::vector<Origin>& origins, std::vector<ValueNode>& nodes,
                    std::vector<ReachEvent>& events);

}  // namespace nanwatch
