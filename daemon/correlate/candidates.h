// SPDX-License-Identifier: Apache-2.0
// What may have made a value that came in from outside torch's ops: through a pipe, a pickle, a
// numpy array, a Python number, a copy.deepcopy() or a memory of batches. These carry no id that
// both ends know.
#pragma once

#include <vector>

#include "daemon/correlate/incident.h"

namespace nanwatch {

// Between processes that share a pool, a value that one has made is read as a number in several.
// Such an incident of metrics alone, whose value has one maker by time, kinds and shape, in another
// process, belongs to that one's incident if there is one; else those of one maker are one.
void FoldCopies(Drafts& drafts);

// What may have made a value that came in from outside torch's ops: through a pipe, a pickle, a
// numpy array, a Python number, a copy.deepcopy() or a memory of batches. These carry no id that
// both ends know.
void AddCandidates(const IncidentDraft& draft, const Drafts& drafts, Incident& incident);

inline constexpr int kCandidatesMax = 4;

}  // namespace nanwatch
