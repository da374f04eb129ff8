// A collective spreads one rank's NaN to all of them; only the rank that made it is to blame.
#pragma once

#include <vector>

#include "daemon/correlate/incident.h"

namespace nanwatch {

// Folds incidents whose origin was received by a collective into the incident of the rank that sent
// it: by the collective's group and sequence, else into the earliest anomaly of another rank in the
// same iteration or the one before. An incident whose sender nobody observed stays, with class
// `received`.
void FoldReceived(const std::vector<Lineage>& runs, Drafts& drafts);

}  // namespace nanwatch
