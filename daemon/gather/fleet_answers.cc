// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/fleet_answers.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>

#include "daemon/fleet/otlp_logs.h"
#include "daemon/gather/fleet_hosts.h"
#include "daemon/gather/fleet_verdict.h"
#include "daemon/gather/launches.h"
#include "daemon/report/json_report.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kPath[] = "/api/v1/jobs";
constexpr char kHosts[] = "/api/v1/hosts";
constexpr char kVerdict[] = "/verdict";
// An answer is kept for as long as it took to make, within these: what is asked for all the time
// takes half of a reader at most, and what arrived is in an answer within seconds.
constexpr uint64_t kKeptLeastNs = kNsPerSecond / 4;
constexpr uint64_t kKeptMostNs = 2 * kNsPerSecond;
constexpr size_t kKeptMax = 16;
constexpr int kOtherLaunchesMax = 16;
constexpr std::chrono::seconds kPatience{20};
constexpr int kAskAgainSeconds = 1;

HttpAnswer Failure(const Status& why) {
  if (why.kind() == ErrorKind::kNotFound) return {.status = 404, .body = why.message() + "\n"};
  return {.status = why.kind() == ErrorKind::kBusy ? 429 : 503,
          .body = why.message() + "\n",
          .retry_after_s = kAskAgainSeconds};
}

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

Result<FleetVerdict> JudgeJob(FleetReader& reader, const std::string& tenant,
                              const std::string& id) {
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
  return fleet;
}

}  // namespace

HttpAnswer FleetAnswers::Answer(const HttpRequest& request) {
  if (!has_readers_)
    return {.status = 404,
            .body = "nothing is read here: start nanwatch-gather with --read-database\n"};
  if (request.path == kHosts) return AnswerHosts(request.tenant);
  const std::string rest = request.path.substr(sizeof kPath - 1);
  const bool is_list = rest.empty();
  if (!is_list && (rest.size() <= sizeof kVerdict || rest[0] != '/' || !rest.ends_with(kVerdict)))
    return {.status = 404, .body = "ask for /api/v1/jobs or /api/v1/jobs/ID/verdict\n"};
  const std::string id = is_list ? "" : rest.substr(1, rest.size() - sizeof kVerdict);
  const Result<std::shared_ptr<const Made>> made =
      Ask({request.tenant, id}, [&](FleetReader& reader) -> Result<Made> {
        if (is_list) {
          const Result<std::vector<FleetJob>> jobs = reader.Jobs(request.tenant);
          if (!jobs.ok()) return jobs.status();
          return Made{.json = JsonOfJobs(*jobs)};
        }
        const Result<FleetVerdict> fleet = JudgeJob(reader, request.tenant, id);
        if (!fleet.ok()) return fleet.status();
        return Made{.json = JsonOfFleet(*fleet), .protobuf = fleet->SerializeAsString()};
      });
  if (!made.ok()) return Failure(made.status());
  if (!is_list && request.accept == kOtlpType)
    return {.type = kOtlpType, .body = (*made)->protobuf};
  return {.type = "application/json", .body = (*made)->json};
}

HttpAnswer FleetAnswers::AnswerHosts(const std::string& tenant) {
  const Result<std::shared_ptr<const Made>> made =
      Ask({tenant, std::string(1, '\0')}, [&](FleetReader& reader) -> Result<Made> {
        const Result<FleetIncidents> incidents = reader.Incidents(tenant);
        if (!incidents.ok()) return incidents.status();
        return Made{.json = JsonOfHosts(*incidents)};
      });
  if (!made.ok()) return Failure(made.status());
  return {.type = "application/json", .body = (*made)->json};
}

// ---- one at a time for each name

Result<std::shared_ptr<const FleetAnswers::Made>> FleetAnswers::Ask(const Name& name,
                                                                    const Make& make) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!AwaitTurn(lock, name))
    return Status(ErrorKind::kBusy, "too many questions at once: ask again later");
  if (const Kept* kept = FindFresh(name)) return kept->made;
  std::unique_ptr<FleetReader> reader = std::move(idle_readers_.back());
  idle_readers_.pop_back();
  being_made_.insert(name);
  lock.unlock();
  const uint64_t began_ns = clock_.monotonic_ns();
  Result<Made> made = MakeIfThereIsMemory(make, *reader);
  std::shared_ptr<const Made> shared;
  const Status status = made.status();
  if (made.ok()) shared = std::make_shared<const Made>(*std::move(made));
  lock.lock();
  being_made_.erase(name);
  idle_readers_.push_back(std::move(reader));
  if (shared != nullptr) Keep(name, shared, clock_.monotonic_ns() - began_ns);
  changed_.notify_all();
  if (shared == nullptr) return status;
  return shared;
}

// The reader has to come back whatever happens.
Result<FleetAnswers::Made> FleetAnswers::MakeIfThereIsMemory(const Make& make,
                                                             FleetReader& reader) {
  try {
    return make(reader);
  } catch (const std::bad_alloc&) {
    return Status(ErrorKind::kResources, "this gatherer has no memory for so large a job");
  }
}

// Until the answer is there, or it can be made; false where that lasts too long.
bool FleetAnswers::AwaitTurn(std::unique_lock<std::mutex>& lock, const Name& name) {
  const auto is_turn = [&] {
    return FindFresh(name) != nullptr || (!idle_readers_.empty() && !being_made_.contains(name));
  };
  if (is_turn()) return true;
  if (waiting_ >= kFleetQuestionsWaitingMax) return false;
  ++waiting_;
  const bool came = changed_.wait_for(lock, kPatience, is_turn);
  --waiting_;
  return came;
}

const FleetAnswers::Kept* FleetAnswers::FindFresh(const Name& name) const {
  const auto kept = kept_.find(name);
  const bool is_fresh = kept != kept_.end() &&
                        clock_.monotonic_ns() - kept->second.made_ns < kept->second.kept_for_ns;
  return is_fresh ? &kept->second : nullptr;
}

void FleetAnswers::Keep(const Name& name, std::shared_ptr<const Made> made, uint64_t took_ns) {
  kept_[name] = {.made_ns = clock_.monotonic_ns(),
                 .kept_for_ns = std::clamp(took_ns, kKeptLeastNs, kKeptMostNs),
                 .made = std::move(made)};
  if (kept_.size() <= kKeptMax) return;
  kept_.erase(std::min_element(kept_.begin(), kept_.end(), [](const auto& a, const auto& b) {
    return a.second.made_ns < b.second.made_ns;
  }));
}

}  // namespace nanwatch
