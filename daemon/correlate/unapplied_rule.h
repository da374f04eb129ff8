// Bad gradients that no update was made of: the program looked at them and left the update out,
// repaired them or threw them away, and the training went on. So did it with a bad loss that the
// program read and from which it began no pass. An anomaly is what was *applied* (RECORDS, rules).
//
// A run that ends before its next update tells nothing of the kind: it may have ended because of
// them. Nor does one in which a GradScaler skips, which has a rule of its own (scaler_rule.h).
#pragma once

#include <vector>

#include "daemon/correlate/reach_event.h"

namespace nanwatch {

// Marks such events; to be called when those of scaler_rule.h are marked. `newest`: the counts as
// the run left them.
void MarkUnapplied(const Clocks& newest, std::vector<ReachEvent>& events);

}  // namespace nanwatch
