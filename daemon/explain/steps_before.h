// SPDX-License-Identifier: Apache-2.0
// What loss and gradient norm were in the steps before each incident: the difference between a
// training that diverged and one bad batch.
//
// Pure, no state, safe from any thread.
#pragma once

#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

// Fills `losses_before` and `gradient_norms_before` of incidents that began in a known step.
void AddStepsBefore(const std::vector<RunFacts>& runs, Verdict& verdict);

}  // namespace nanwatch
