// SPDX-License-Identifier: Apache-2.0
// The answer for one launch of a job of many hosts, from what their daemons reported: by the rules
// of one host (daemon/explain/explain.h), over the facts of all. Pure: no clock of a host decides
// anything, and the order in which rows arrived decides nothing. How long ago a rank was heard of
// is the database's word.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/gather/fleet_run.h"
#include "fleet.pb.h"

namespace nanwatch {

// A rank that has not ended and was not heard of for so long fell silent. Its daemon sends a state
// every ten seconds, a long one every minute (daemon/store/outbox.h).
inline constexpr int64_t kFleetSilentSeconds = 180;

// The bodies of a run's findings, as its daemon numbered them.
using FindingsByRun = std::map<std::string, std::vector<std::string>>;

// Adds their findings to `runs`. `is_whole`: whether these are all that there are; where not, the
// verdict says that some were lost.
void AddFindings(const FindingsByRun& findings, bool is_whole, std::vector<FleetRun>& runs);

// A launch that looks clean is `unknown` while ranks of it were not heard of (`ranks_not_heard`),
// or fell silent before they ended (`ranks_behind`).
[[nodiscard]] FleetVerdict JudgeFleet(const std::vector<FleetRun>& runs);

}  // namespace nanwatch
