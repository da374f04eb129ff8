// SPDX-License-Identifier: Apache-2.0
// A gradient that came in bad, into an autograd node that computes with it several times. In a
// backward pass nobody reads what the first op is given, so that it seems to have made what the
// next one, whose inputs are read from then on, finds in its own.
#pragma once

#include <vector>

#include "daemon/correlate/origin.h"
#include "daemon/correlate/reach_event.h"
#include "daemon/correlate/value_node.h"

namespace nanwatch {

// What such an op seems to have made is taken for what came in, in all that names an origin.
void TakeForItsGradient(const std::vector<Origin>& origins, std::vector<ValueNode>& nodes,
                        std::vector<ReachEvent>& events, std::vector<Sending>& sendings);

}  // namespace nanwatch
