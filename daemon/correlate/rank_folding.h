// SPDX-License-Identifier: Apache-2.0
// A collective spreads one rank's NaN to all of them, and memory that processes share carries it
// from a worker to the training; only the process that made it is to blame.
#pragma once

#include <vector>

#include "daemon/correlate/incident.h"

namespace nanwatch {

// Folds incidents whose origin was received by a collective into the incident of the rank that sent
// it: by the collective's group and sequence, else into the earliest anomaly of another rank in the
// same iteration or the one before. An incident whose sender nobody observed stays, with class
// `received`. What came in by shared memory is folded into the incident of the process that wrote
// it there last before it was read, and stays `external` where none was observed to.
void FoldReceived(const std::vector<Lineage>& runs, Drafts& drafts);

}  // namespace nanwatch
