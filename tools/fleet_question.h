// SPDX-License-Identifier: Apache-2.0
// What a gatherer is asked about the jobs of a fleet (daemon/gather/fleet_answers.h).
#pragma once

#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/http/http_client.h"
#include "fleet.pb.h"

namespace nanwatch {

// kNotFound: no host reported such a job; `job` is its whole id.
// The document of /api/v1/hosts: hosts on which several launches went wrong first.
[[nodiscard]] Result<std::string> AskFleetHosts(const HttpClientOptions& fleet);

[[nodiscard]] Result<FleetVerdict> AskFleetVerdict(const HttpClientOptions& fleet,
                                                   const std::string& job);

// What a person has to know beside the verdict, a sentence each: ranks that were not heard of or
// fell silent, what was lost on the way, other launches of the same id.
[[nodiscard]] std::vector<std::string> RemarksOn(const FleetVerdict& verdict,
                                                 const std::string& job);

}  // namespace nanwatch
