// SPDX-License-Identifier: Apache-2.0
// What may have made a value that came in from outside torch's ops: through a pipe, a pickle, a
// numpy array, a Python number, a copy.deepcopy() or a memory of batches. These carry no id that
// both ends know.
#pragma once

#include <vector>

#include "daemon/correlate/incident.h"

namespace nanwatch {

// What may have made a value that came in from outside torch's ops: through a pipe, a pickle, a
// numpy array, a Python number, a copy.deepcopy() or a memory of batches. These carry no id that
// both ends know.
void AddCandidates(const IncidentDraft& draft, const Drafts& drafts, Incident& incident);

inline constexpr int kCandidatesMax = 4;

}  // namespace nanwatch
