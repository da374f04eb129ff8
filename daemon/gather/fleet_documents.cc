// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/fleet_documents.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "daemon/gather/fleet_hosts.h"
#include "daemon/gather/fleet_verdict.h"
#include "daemon/gather/launches.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/report/json_report.h"
#include "daemon/report/page/page_document.h"
#include "daemon/report/page/run_series.h"
#include "fleet.pb.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kOtherLaunchesMax = 16;
constexpr int64_t kGivenUpSeconds = 3'600;
// Of a job: a page draws fewer, and `tail` can be read of fewer.
constexpr size_t kRunsShownMax = 512;

std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

template <typename Values>
std::vector<typename Values::value_type> ListOf(const Values& values) {
  return {values.begin(), values.end()};
}

std::string JsonOfFleet(const FleetVerdict& fleet) {
  Json json = JsonOf(fleet.verdict());
  json["fleet"] = Json{{"ranks_expected", fleet.ranks_expected()},
                       {"ranks_heard", fleet.ranks_heard()},
                       {"ranks_silent", ListOf(fleet.ranks_silent())},
                       {"ranks_behind", ListOf(fleet.ranks_behind())},
                       {"findings_missing", fleet.findings_missing()},
                       {"runs_left_out", fleet.runs_left_out()},
                       {"launch", fleet.launch()},
                       {"launch_by_clocks", fleet.launch_by_clocks()},
                       {"other_launches", ListOf(fleet.other_launches())},
                       {"lost", Json{{"findings", fleet.lost().findings()},
                                     {"runs", fleet.lost().runs()},
                                     {"conclusions", fleet.lost().conclusions()},
                                     {"steps", fleet.lost().steps()},
                                     {"outboxes", fleet.lost().outboxes()},
                                     {"refused", fleet.lost().refused()}}}};
  return Dump(json);
}

std::string JsonOfJobs(const std::vector<FleetJob>& jobs) {
  Json list = Json::array();
  for (const FleetJob& job : jobs) {
    list.push_back(Json{{"job", job.job},
                        {"launches", job.launches},
                        {"runs", job.runs},
                        {"runs_ended", job.ended},
                        {"hosts", job.hosts},
                        {"world_size", job.world_size},
                        {"host_incidents", job.incidents},
                        {"heard_at", job.heard_at}});
  }
  return Dump(Json{{"schema", "nanwatch.fleet_jobs/1"}, {"jobs", std::move(list)}});
}

std::string JsonOfHosts(const FleetIncidents& incidents) {
  Json list = Json::array();
  for (const FleetHost& host : HostsThatStandOut(incidents.incidents)) {
    list.push_back(Json{{"host", host.host},
                        {"launches", host.launches},
                        {"incidents", host.incidents},
                        {"op", host.op},
                        {"layer", host.layer}});
  }
  return Dump(Json{{"schema", "nanwatch.fleet_hosts/1"},
                   {"hosts", std::move(list)},
                   {"older_incidents_left_out", !incidents.is_whole}});
}

// "train@3f9c01d2" as job and launch; another id has no launch.
std::pair<std::string, std::string> PartsOf(const std::string& id) {
  constexpr size_t kDigits = 8;
  const bool has_launch =
      id.size() > kDigits + 1 && id[id.size() - kDigits - 1] == '@' &&
      id.find_first_not_of("0123456789abcdef", id.size() - kDigits) == std::string::npos;
  if (!has_launch) return {id, ""};
  return {id.substr(0, id.size() - kDigits - 1), id.substr(id.size() - kDigits)};
}

// ---- of which runs

bool IsLive(const FleetRun& run) {
  return !run.facts.state().ended() && run.heard_ago_s < kFleetSilentSeconds;
}

// The first of a launch by rank, those that incidents name before others.
std::vector<FleetRun> ShownOf(JudgedLaunch& judged) {
  std::set<std::string> named;
  for (const Incident& incident : judged.fleet.verdict().incidents())
    named.insert(incident.origin().run());
  std::vector<FleetRun> runs = std::move(judged.runs);
  const auto order = [&](const FleetRun& run) {
    return std::pair(!named.contains(run.run), run.facts.run().rank());
  };
  std::stable_sort(runs.begin(), runs.end(),
                   [&](const FleetRun& a, const FleetRun& b) { return order(a) < order(b); });
  if (runs.size() > kRunsShownMax) runs.resize(kRunsShownMax);
  std::stable_sort(runs.begin(), runs.end(), [](const FleetRun& a, const FleetRun& b) {
    return a.facts.run().rank() < b.facts.run().rank();
  });
  return runs;
}

}  // namespace

Result<JudgedLaunch> JudgeJob(const FleetQuestion& question, const std::string& id) {
  FleetReader& reader = question.reader;
  const std::string& tenant = question.tenant;
  const std::pair<std::string, std::string> parts = PartsOf(id);
  const std::string& job = parts.first;
  const std::string& launch = parts.second;
  Result<FleetRuns> runs = reader.RunsOfJob(tenant, job);
  if (!runs.ok()) return runs.status();
  FleetGaps gaps = {.runs_left_out = runs->left_out};
  std::vector<FleetLaunch> launches = SplitLaunches(std::move(runs->runs));
  const auto asked = launch.empty()
                         ? std::prev(launches.end())
                         : std::find_if(launches.begin(), launches.end(),
                                        [&](const FleetLaunch& one) { return one.name == launch; });
  if (asked == launches.end())
    return Status(ErrorKind::kNotFound, "the job has no launch of that name: ask without it");
  const Result<FleetFindings> findings = reader.FindingsOf(tenant, job, asked->runs);
  if (!findings.ok()) return findings.status();
  Result<OutboxLoss> lost = reader.LossOf(asked->runs);
  if (!lost.ok()) return lost.status();
  AddFindings(findings->bodies, findings->is_whole, asked->runs);
  gaps.launch_by_clocks = asked->is_by_clocks;
  FleetVerdict fleet = JudgeFleet(asked->runs, gaps);
  fleet.set_launch(asked->name);
  *fleet.mutable_lost() = *std::move(lost);
  for (auto other = launches.rbegin(); other != launches.rend(); ++other) {
    if (other->name != asked->name && fleet.other_launches_size() < kOtherLaunchesMax)
      fleet.add_other_launches(other->name);
  }
  return JudgedLaunch{.fleet = std::move(fleet), .job = job, .runs = std::move(asked->runs)};
}

Result<bool> GoesOn(const FleetQuestion& question, const std::string& job,
                    const std::string& launch) {
  Result<FleetRuns> runs = question.reader.RunsOfJob(question.tenant, job);
  if (runs.status().kind() == ErrorKind::kNotFound) return false;
  if (!runs.ok()) return runs.status();
  for (const FleetLaunch& one : SplitLaunches(std::move(runs->runs))) {
    if (one.name != launch) continue;
    return std::any_of(one.runs.begin(), one.runs.end(), [](const FleetRun& run) {
      return !run.facts.state().ended() && run.heard_ago_s < kGivenUpSeconds;
    });
  }
  return false;
}

Result<FleetDocument> JobListOf(const FleetQuestion& question, const std::string&) {
  const Result<std::vector<FleetJob>> jobs = question.reader.Jobs(question.tenant);
  if (!jobs.ok()) return jobs.status();
  return FleetDocument{.json = JsonOfJobs(*jobs)};
}

Result<FleetDocument> HostListOf(const FleetQuestion& question, const std::string&) {
  const Result<FleetIncidents> incidents =
      question.reader.Incidents(question.tenant, kFleetIncidentsMax);
  if (!incidents.ok()) return incidents.status();
  return FleetDocument{.json = JsonOfHosts(*incidents)};
}

Result<FleetDocument> RunListOf(const FleetQuestion& question, const std::string&) {
  const Result<std::vector<ListedRun>> runs = question.reader.Runs(question.tenant);
  if (!runs.ok()) return runs.status();
  const Result<FleetIncidents> incidents =
      question.reader.Incidents(question.tenant, kFleetIncidentsListedMax);
  if (!incidents.ok()) return incidents.status();
  FleetRunList list;
  for (const ListedRun& run : *runs) {
    FleetRunList::One& one = *list.add_runs();
    one.set_id(run.run.run);
    one.set_job(run.job);
    one.set_heard_ago_s(run.run.heard_ago_s);
    one.set_recorded_ns(run.run.recorded_ns);
    *one.mutable_facts() = run.run.facts;
    one.mutable_facts()->clear_sites();
  }
  std::map<std::string, FleetRunList::Job*> jobs;
  for (const HostIncident* incident : FirstOnTheirHosts(incidents->incidents)) {
    FleetRunList::Job*& job = jobs[incident->job];
    if (job == nullptr) {
      job = list.add_jobs();
      job->set_job(incident->job);
    }
    *job->add_incidents() = incident->incident;
  }
  return FleetDocument{.protobuf = list.SerializeAsString()};
}

Result<FleetDocument> VerdictOf(const FleetQuestion& question, const std::string& id) {
  const Result<JudgedLaunch> judged = JudgeJob(question, id);
  if (!judged.ok()) return judged.status();
  return FleetDocument{.json = JsonOfFleet(judged->fleet),
                       .protobuf = judged->fleet.SerializeAsString()};
}

Result<FleetDocument> PageOf(const FleetQuestion& question, const std::string& id) {
  Result<JudgedLaunch> judged = JudgeJob(question, id);
  if (!judged.ok()) return judged.status();
  const bool live = std::any_of(judged->runs.begin(), judged->runs.end(), IsLive);
  const std::vector<FleetRun> shown = ShownOf(*judged);
  Result<FleetSteps> steps = question.reader.StepsOf(question.tenant, judged->job, shown);
  if (!steps.ok()) return steps.status();
  PageFacts facts = {.verdict = judged->fleet.verdict(),
                     .stats = {},
                     .series = {},
                     .job = judged->job,
                     .made_at = FormatUtc(question.clock.real_ns()),
                     .version = NANWATCH_VERSION,
                     .live = live};
  for (const FleetRun& run : shown) facts.series.push_back(SeriesOf(run.facts, (*steps)[run.run]));
  return FleetDocument{.json = Dump(PageDocument(facts))};
}

Result<FleetDocument> FactsOf(const FleetQuestion& question, const std::string& id) {
  Result<JudgedLaunch> judged = JudgeJob(question, id);
  if (!judged.ok()) return judged.status();
  FleetFacts facts;
  facts.set_live(std::any_of(judged->runs.begin(), judged->runs.end(), IsLive));
  size_t bytes = 0;
  for (FleetRun& run : ShownOf(*judged)) {
    bytes += run.facts.ByteSizeLong();
    if (facts.runs_size() > 0 && bytes > kFleetFactsBytesMax) break;
    *facts.add_runs() = std::move(run.facts);
  }
  *facts.mutable_verdict() = std::move(judged->fleet);
  return FleetDocument{.protobuf = facts.SerializeAsString()};
}

}  // namespace nanwatch
