// SPDX-License-Identifier: Apache-2.0
// What a GradScaler excuses. It multiplies the loss by a scale that starts too high on purpose,
// looks for non-finite gradients, and skips the update when it finds some: so the first steps of a
// healthy run are full of Inf.
//
// Excused is only what scaling explains: values made in backward, under a root that was finite
// before it was scaled, while the scale is 1 or more and no more than ten updates in a row were
// skipped, or an update that was taken ended the row. A value made in forward, or skips without end,
// are the real thing and stay an anomaly although no parameter is touched.
//
// A loss may have been scaled and the decision about its gradients not been seen (the level was
// lowered in between). Then nobody knows whether they were applied.
#pragma once

#include <vector>

#include "daemon/correlate/origin.h"
#include "daemon/correlate/reach_event.h"
#include "verdict.pb.h"

namespace nanwatch {

// Marks the events that are excused. `events` are those of the run, by ticket. Events of a job that
// died before its scaler could decide count as skipped when the run had a scaler. `newest`: the
// counts as the run left them.
void ExcuseSkippedUpdates(const std::vector<const Record*>& records, const Clocks& newest,
                          const std::vector<Origin>& origins, std::vector<ReachEvent>& events);

// Whether one of them is excused although its scaler's decision was not seen.
[[nodiscard]] bool ExcusedUndecided(const std::vector<ReachEvent>& events);

// Whether one of them is excused that scaling need not explain: NaN alone, behind results that were
// read in part, or in memory that no observed op wrote. What is too large leaves Inf first. NaN
// alone may come of an Inf in forward that nobody used, whose slope is 0.
[[nodiscard]] bool ExcusedUnread(const std::vector<Origin>& origins,
                                 const std::vector<ReachEvent>& events);

}  // namespace nanwatch
