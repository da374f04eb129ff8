// SPDX-License-Identifier: Apache-2.0
// Which runs of one job id belong together. An id comes again: a step of Slurm on another cluster
// or after its counter wrapped, a NANWATCH_JOB that somebody gives to each training.
//
// Runs are of one launch where they share what their environment says of it and the attempt; where
// none of them began more than kFleetLaunchGapNs after all others were heard of last; and where no
// host ran the same program as the same rank a second time, after the first had ended. The first
// two hold whatever the clocks of hosts are, within minutes; of the last, the n-th time of one rank
// goes with the n-th of another, and each host compares its own times alone. A run of which the
// environment says nothing goes with others of its host, or with the only launch there is.
//
// Where only clocks of several hosts are left to tell, the launch says so (`is_by_clocks`). Where a
// launch is taken apart too far, its ranks are missing, and its verdict is `unknown`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/gather/fleet_run.h"

namespace nanwatch {

inline constexpr uint64_t kFleetLaunchGapNs = uint64_t{3600} * 1'000'000'000;

struct FleetLaunch {
  std::string name = {};  // "3f9c01d2": JOB@3f9c01d2 asks for it
  int32_t attempt = 0;
  uint64_t began_ns = 0;  // the newest of its runs, by that host's clock
  // Nothing but a comparison of clocks of several hosts tells its runs from others of the id.
  bool is_by_clocks = false;
  std::vector<FleetRun> runs = {};
};

// The newest last.
[[nodiscard]] std::vector<FleetLaunch> SplitLaunches(std::vector<FleetRun> runs);

}  // namespace nanwatch
