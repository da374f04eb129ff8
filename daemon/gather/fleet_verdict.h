// SPDX-License-Identifier: Apache-2.0
// The answer for a job of many hosts, from what their daemons reported: by the rules of one host
// (daemon/explain/explain.h), over the facts of all. Pure: no clock decides anything, and the order
// in which rows arrived decides nothing.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/fleet/fleet_row.h"
#include "fleet.pb.h"

namespace nanwatch {

// Rows of one job: states of its runs, and their findings. Others are left out.
// `is_whole`: whether these are all findings that there are; where not, the verdict says that some
// were lost.
[[nodiscard]] std::vector<RunFacts> FactsOfRows(std::vector<FleetRow> rows, bool is_whole);

// A job that looks clean is `unknown` while ranks of it were not heard of (`ranks_not_heard`).
[[nodiscard]] FleetVerdict JudgeFleet(const std::vector<RunFacts>& runs);

}  // namespace nanwatch
