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

#include "daemon/fleet/fleet_row.h"
#include "daemon/gather/fleet_run.h"
#include "fleet.pb.h"

namespace nanwatch {

// A launch is judged by so many records: each of its runs by at most the same number, what others
// do not use included, and by no fewer than the second figure. Of a run that has more, the first
// and the newest.
inline constexpr uint64_t kFleetRecordsMax = 256'000;
inline constexpr uint64_t kFleetRecordsPerRunLeast = 8;

// The bodies of a run's findings, as its daemon numbered them.
using FindingsByRun = std::map<std::string, std::vector<std::string>>;

// Adds their findings to `runs`, at most `records_max` records, and counts what is left out.
// `is_whole`: whether these are all that there are; where not, the verdict says that some were
// lost.
void AddFindings(const FindingsByRun& findings, bool is_whole, std::vector<FleetRun>& runs,
                 uint64_t records_max = kFleetRecordsMax);

// What is known to be missing beside the runs themselves.
struct FleetGaps {
  uint64_t runs_left_out = 0;     // there are more than were read
  bool launch_by_clocks = false;  // runs of another launch may be among them, or some elsewhere
};

// A launch that looks clean is `unknown` where
//   ranks_not_heard    ranks of it were not heard of,
//   ranks_behind       or fell silent before they ended,
//   runs_left_out      it has more runs than were read,
//   findings_missing   findings that its runs have made are not here yet,
//   launch_by_clocks   only the clocks of hosts tell its runs from those of another launch.
// Where one of these holds, no origin is exact. Of incidents that are equally bad, those whose chain
// breaks off in a run of which findings are missing come last.
[[nodiscard]] FleetVerdict JudgeFleet(const std::vector<FleetRun>& runs,
                                      const FleetGaps& gaps = {});

}  // namespace nanwatch
