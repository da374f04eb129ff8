// SPDX-License-Identifier: Apache-2.0
// Snapshots of parameters for people and documents: steps and types by name, the ratio of update to
// weight, and the summary in a verdict.
//
// Pure, no state, safe from any thread. Figures that are not finite stay so.
#pragma once

#include <string>
#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

// Every snapshot in `stats_read` of these runs, each once, whatever their order; the job's name is
// the caller's to give.
[[nodiscard]] StatsReport ReportStats(const std::vector<RunFacts>& runs, const std::string& job);

// Fills `stats` of the verdict on these runs, from the newest snapshot of its run; leaves it absent
// where there is none.
void AddStats(const std::vector<RunFacts>& runs, Verdict& verdict);

}  // namespace nanwatch
