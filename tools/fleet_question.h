// SPDX-License-Identifier: Apache-2.0
// What a gatherer is asked about the jobs of a fleet (daemon/gather/fleet_answers.h).
#pragma once

#include <string>

#include "daemon/base/status.h"
#include "daemon/http/http_client.h"
#include "fleet.pb.h"

namespace nanwatch {

// kNotFound: no host reported such a job; `job` is its whole id.
[[nodiscard]] Result<FleetVerdict> AskFleetVerdict(const HttpClientOptions& fleet,
                                                   const std::string& job);

// "2 of 4 ranks were not heard of: 1, 3"; "" where all were.
[[nodiscard]] std::string SilentRanks(const FleetVerdict& verdict);

}  // namespace nanwatch
