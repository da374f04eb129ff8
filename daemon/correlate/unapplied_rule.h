// SPDX-License-Identifier: Apache-2.0
// Bad gradients and losses that no update was made of: the program checked them and skipped the
// step, repaired them or threw them away, and the training went on. An anomaly is what was
// *applied* (RECORDS, rules).
//
// A run that ends before its next update says nothing of the kind: it may have ended because of
// them. Nor do the gradients of one in which a GradScaler skips, which has a rule of its own
// (scaler_rule.h).
#pragma once

#include <vector>

#include "daemon/correlate/reach_event.h"

namespace nanwatch {

// Marks such events; to be called when those of scaler_rule.h are marked. `newest`: the counts as
// the run left them.
void MarkUnapplied(const Clocks& newest, std::vector<ReachEvent>& events);

}  // namespace nanwatch
