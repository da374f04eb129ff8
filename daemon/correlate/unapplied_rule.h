// SPDX-License-Identifier: Apache-2.0
// Bad gradients and losses that no update was made of: the program checked them and skipped the
// step, repaired them or threw them away, and the training went on. An anomaly is what was
// *applied* (RECORDS, rules).
//
// A loss at which a pass began counts as such where the program has read it, or what came of it (a
// gradient's norm), in the same step, and where the gradients that no update took were bad. At level
// canary gradients are read as updates begin: there it has tested what the pass made.
//
// A run that ends before its next update says nothing of the kind: it may have ended because of
// them, unless it has left such values out before. Nor do the gradients of one in which a GradScaler
// skips, which has a rule of its own (scaler_rule.h).
#pragma once

#include <vector>

#include "daemon/correlate/origin.h"
#include "daemon/correlate/reach_event.h"
#include "daemon/correlate/value_node.h"

namespace nanwatch {

// Marks such events; to be called when those of scaler_rule.h are marked. `newest`: the counts as
// the run left them. `reads`: what Python read. `ended_well`: with exit status 0.
// Where somebody has changed the level in the step, the update may have been made unseen: it stays
// undecided.
void MarkUnapplied(const std::vector<const Record*>& records, const Clocks& newest,
                   const std::vector<Origin>& origins, const std::vector<ValueNode>& nodes,
                   const std::vector<BadRead>& reads, bool ended_well,
                   std::vector<ReachEvent>& events);

// Whether there is such an event of which that is not decided.
[[nodiscard]] bool UnappliedUndecided(const std::vector<ReachEvent>& events);

}  // namespace nanwatch
