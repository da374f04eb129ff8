// SPDX-License-Identifier: Apache-2.0
// Bad values that a job which ended with an error had last met: what a loss function refuses
// (binary_cross_entropy), a distribution's check of its arguments, torch.multinomial, anomaly mode.
// They reached nothing by the records, for the job did not live to see it.
//
// Such a value was computed for a gradient, or in a backward pass, in the iteration in which the
// job ended; nothing that is recorded was made of it, and no op made something finite of it, here
// or at an earlier step, but for comparisons, by which checks are written, and for what prints it.
// -Inf alone is a mask. In a script that trains nothing it is the value that such a comparison, or
// the program itself, read last; so it is in a training whose error speaks of values that are not
// finite, for policies are sampled and losses are looked at without gradients.
//
// At level sampled nobody sees what was made of a value, so it may be harmless. There the job ended
// by it only where the error speaks of values that are not finite, or the origin is exact.
#pragma once

#include <vector>

#include "daemon/correlate/lineage.h"

namespace nanwatch {

// The origins of these values; empty where the job ended otherwise, or nobody knows how.
[[nodiscard]] std::vector<int> OriginsAtDeath(const Lineage& run);

// An error ended the job while it held a bad value, and nobody has seen what became of the value.
[[nodiscard]] bool DiedUnfollowed(const Lineage& run);

// A signal other than SIGINT ended the job while it held such a value. Whether the step would have
// applied it is unknown.
[[nodiscard]] bool WasKilledInBadStep(const Lineage& run);

}  // namespace nanwatch
