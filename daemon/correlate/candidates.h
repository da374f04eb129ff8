// SPDX-License-Identifier: Apache-2.0
// What may have made a value that came in from outside torch's ops: by a pipe, a pickle, a numpy
// array or a Python number, which carry no name that both ends know.
#pragma once

#include <vector>

#include "daemon/correlate/incident.h"

namespace nanwatch {

// Adds to `incident`, whose origin came in, the places that made the same kind of bad value before
// it and did no harm that is known: in another process of the host, or in the same one where Python
// then read it as a number. Its origin is not exact where there is one. At most kCandidatesMax, the
// latest first.
void AddCandidates(const IncidentDraft& draft, const Drafts& drafts, Incident& incident);

inline constexpr int kCandidatesMax = 4;

}  // namespace nanwatch
