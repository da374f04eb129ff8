// SPDX-License-Identifier: Apache-2.0
// What may have made a value that came in from outside torch's ops: through a pipe, a pickle, a
// numpy array or a Python number. These carry no id that both ends know.
#pragma once

#include <vector>

#include "daemon/correlate/incident.h"

namespace nanwatch {

// Adds to `incident`, whose origin came in, the sites that made the same kind of bad value before
// and did no known harm: in another process of the host, or in the same one if Python then read it
// as a number. With a candidate the origin is not exact. At most kCandidatesMax, the latest first.
void AddCandidates(const IncidentDraft& draft, const Drafts& drafts, Incident& incident);

inline constexpr int kCandidatesMax = 4;

}  // namespace nanwatch
