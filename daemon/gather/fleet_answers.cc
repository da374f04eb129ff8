// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/fleet_answers.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "daemon/gather/fleet_verdict.h"
#include "daemon/report/json_report.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kPath[] = "/api/v1/jobs";
constexpr char kVerdict[] = "/verdict";
constexpr char kVerdictType[] = "application/x-protobuf";
constexpr uint64_t kKeptNs = 2 * kNsPerSecond;
constexpr size_t kKeptMax = 64;

HttpAnswer Failure(const Status& why) {
  return {.status = why.kind() == ErrorKind::kNotFound ? 404 : 503, .body = why.message() + "\n"};
}

HttpAnswer JsonAnswer(const Json& json) {
  return {.type = "application/json",
          .body = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"};
}

}  // namespace

HttpAnswer FleetAnswers::Answer(const HttpRequest& request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (reader_ == nullptr)
    return {.status = 404,
            .body = "nothing is read here: start nanwatch-gather with --read-database\n"};
  std::string rest = request.path.substr(sizeof kPath - 1);
  if (rest.empty()) return Jobs();
  if (rest.size() <= sizeof kVerdict || rest[0] != '/' || !rest.ends_with(kVerdict))
    return {.status = 404, .body = "ask for /api/v1/jobs or /api/v1/jobs/ID/verdict\n"};
  return VerdictOf(rest.substr(1, rest.size() - sizeof kVerdict), request.accept);
}

HttpAnswer FleetAnswers::Jobs() {
  const Result<std::vector<FleetJob>> jobs = reader_->Jobs();
  if (!jobs.ok()) return Failure(jobs.status());
  Json list = Json::array();
  for (const FleetJob& job : *jobs) {
    list.push_back(Json{{"job", job.job},
                        {"runs", job.runs},
                        {"runs_ended", job.ended},
                        {"hosts", job.hosts},
                        {"world_size", job.world_size},
                        {"host_incidents", job.incidents},
                        {"heard_at", job.heard_at}});
  }
  return JsonAnswer(Json{{"schema", "nanwatch.fleet_jobs/1"}, {"jobs", std::move(list)}});
}

HttpAnswer FleetAnswers::VerdictOf(const std::string& job, const std::string& accept) {
  const Result<const FleetVerdict*> found = Judge(job);
  if (!found.ok()) return Failure(found.status());
  const FleetVerdict& fleet = **found;
  if (accept == kVerdictType) return {.type = kVerdictType, .body = fleet.SerializeAsString()};
  Json json = JsonOf(fleet.verdict());
  json["fleet"] = Json{{"ranks_expected", fleet.ranks_expected()},
                       {"ranks_heard", fleet.ranks_heard()},
                       {"ranks_silent", std::vector<int32_t>(fleet.ranks_silent().begin(),
                                                             fleet.ranks_silent().end())}};
  return JsonAnswer(json);
}

Result<const FleetVerdict*> FleetAnswers::Judge(const std::string& job) {
  const uint64_t now_ns = clock_.monotonic_ns();
  if (const auto kept = kept_.find(job);
      kept != kept_.end() && now_ns - kept->second.made_ns < kKeptNs)
    return &kept->second.verdict;
  Result<FleetJobRows> rows = reader_->RowsOfJob(job);
  if (!rows.ok()) return rows.status();
  if (kept_.size() >= kKeptMax) kept_.clear();
  Kept& kept = kept_[job];
  kept = {.made_ns = now_ns,
          .verdict = JudgeFleet(FactsOfRows(std::move(rows->rows), rows->is_whole))};
  return &kept.verdict;
}

}  // namespace nanwatch
