// SPDX-License-Identifier: Apache-2.0
#include "tools/tail_source.h"

#include <utility>

#include "tools/fleet_question.h"
#include "tools/job_leftovers.h"
#include "tools/job_verdict.h"

namespace nanwatch {

std::vector<RunFacts> HostSource::FactsOf(const std::string& job) {
  return observations_.FactsOfJob(job);
}

Verdict HostSource::VerdictOn(const std::string& job, const std::vector<RunFacts>& facts) {
  return VerdictOfJob(facts, observations_.ExitOfJob(job),
                      UnwatchedOfJob(observations_.places(), job));
}

Status FleetSource::Ask(const std::string& job) {
  Result<FleetFacts> facts = AskFleetFacts(fleet_, job);
  if (!facts.ok()) return facts.status();
  facts_ = *std::move(facts);
  return Status();
}

std::vector<RunFacts> FleetSource::FactsOf(const std::string&) {
  return {facts_.runs().begin(), facts_.runs().end()};
}

Verdict FleetSource::VerdictOn(const std::string&, const std::vector<RunFacts>&) {
  return facts_.verdict().verdict();
}

}  // namespace nanwatch
