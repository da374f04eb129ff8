// SPDX-License-Identifier: Apache-2.0
// What went before an origin on its thread: the ops that left clean results, and how large these
// were (RECORDS: what was growing).
#pragma once

#include "verdict.pb.h"

namespace nanwatch {

inline constexpr int kTrailShownMax = 100;
inline constexpr int kHistoryMax = 16;

// Fills `trail` and `history` of an incident whose origin is set, from what the job recorded.
void AddTrail(const TrailFact& trail, Incident& incident);

}  // namespace nanwatch
