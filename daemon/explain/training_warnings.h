// SPDX-License-Identifier: Apache-2.0
// Early warnings as people and documents get them: what daemon/watch raised, with cause and remedy
// from warnings.json (compiled in), where {names} stand for the step, the warning's numbers, and
// its parameter or layer ({param}). Of several sentences of evidence the first is taken of which
// all names are known.
//
// Pure, no state, safe from any thread.
#pragma once

#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

// Those of one run, in the order in which they were raised: what the daemon has seen of its steps,
// and what is in the segment beyond that.
[[nodiscard]] std::vector<Warning> WarningsOf(const RunFacts& facts);

// Fills `warnings` of the verdict on these runs. What several processes of a job show at about the
// same time, as ranks do that share their gradients, is one warning, of the first. Nothing else of
// the verdict changes.
void AddWarnings(const std::vector<RunFacts>& runs, Verdict& verdict);

}  // namespace nanwatch
