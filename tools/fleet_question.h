// SPDX-License-Identifier: Apache-2.0
// What a gatherer is asked about the jobs of a fleet (daemon/gather/fleet_answers.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/http/http_client.h"
#include "fleet.pb.h"
#include "tools/observations.h"

namespace nanwatch {

// The document of /api/v1/hosts: hosts on which several launches went wrong first.
[[nodiscard]] Result<std::string> AskFleetHosts(const HttpClientOptions& fleet);

// kNotFound: no host reported such a job; `job` is its whole id, or JOB@LAUNCH.
[[nodiscard]] Result<FleetVerdict> AskFleetVerdict(const HttpClientOptions& fleet,
                                                   const std::string& job);

// Likewise, as JSON.
[[nodiscard]] Result<std::string> AskFleetVerdictDocument(const HttpClientOptions& fleet,
                                                          const std::string& job);
// Likewise: nanwatch.page/1.
[[nodiscard]] Result<std::string> AskFleetPage(const HttpClientOptions& fleet,
                                               const std::string& job);
// Likewise.
[[nodiscard]] Result<FleetFacts> AskFleetFacts(const HttpClientOptions& fleet,
                                               const std::string& job);

// The runs of all jobs that were heard of last.
struct FleetListing {
  std::vector<SeenRun> runs;          // newest start first
  std::vector<uint64_t> recorded_ns;  // of each, when its host wrote the state, by its own clock
  std::map<std::string, std::vector<Incident>> incidents;  // of jobs, as hosts concluded them
};
[[nodiscard]] Result<FleetListing> AskFleetRuns(const HttpClientOptions& fleet);

// `name` where it is not ""; else the job of the run that started last. kNotFound: there is none.
[[nodiscard]] Result<std::string> FleetJobOf(const HttpClientOptions& fleet,
                                             const std::string& name);

// What a person has to know beside the verdict, a sentence each: ranks that were not heard of or
// fell silent, what was lost on the way, other launches of the same id.
[[nodiscard]] std::vector<std::string> RemarksOn(const FleetVerdict& verdict,
                                                 const std::string& job);

}  // namespace nanwatch
