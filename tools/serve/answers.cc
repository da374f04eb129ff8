// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/answers.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "daemon/base/clock.h"
#include "daemon/correlate/wire_names.h"
#include "daemon/report/json_report.h"
#include "daemon/report/page/html_page.h"
#include "daemon/report/text_report.h"
#include "tools/job_page.h"
#include "tools/job_verdict.h"
#include "tools/run_json.h"
#include "tools/run_words.h"
#include "tools/serve/metrics.h"
#include "tools/serve/page_answers.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kFreshNs = 1'000'000'000;
constexpr uint64_t kStaleNs = 5'000'000'000;  // older ones nobody gets
constexpr uint64_t kJobKeptNs = 2'000'000'000;
constexpr size_t kJobsKeptMax = 8;

HttpAnswer NotFound() {
  return {.status = 404,
          .body = "there is nothing here: / lists the runs, /metrics has them for Prometheus\n"};
}

HttpAnswer Unreadable(const Status& database) {
  return {.status = 503, .body = database.message() + "\n"};
}

// Incidents that alarm.
int64_t AlarmsOf(const std::map<std::string, TableJob>& jobs, const std::string& job) {
  const auto found = jobs.find(job);
  if (found == jobs.end()) return 0;
  const std::vector<Incident>& incidents = found->second.incidents;
  return std::count_if(incidents.begin(), incidents.end(),
                       [](const Incident& incident) { return incident.severity() != "info"; });
}

Json RunAsJson(const TableRun& run, int64_t anomalies) {
  Json json = RunJson({.id = run.id,
                       .job = run.job,
                       .run = run.run,
                       .state = run.state,
                       .state_text = run.state_text,
                       .live = run.live,
                       .step = run.step,
                       .loss = run.loss});
  json["job_anomalies"] = anomalies;
  return json;
}

}  // namespace

// Reads all runs; where another database has the name of the one that it has open, that one.
class Answers::Reader {
 public:
  [[nodiscard]] std::shared_ptr<const OfAllRuns> Read(const Clock& clock) {
    struct stat status {};
    const bool is_same = table_ != nullptr &&
                         stat(observations_->places().database.c_str(), &status) == 0 &&
                         device_ == status.st_dev && inode_ == status.st_ino;
    if (!is_same) Open();
    table_->Refresh();
    auto all = std::make_shared<OfAllRuns>();
    all->database_status = table_->database_status();
    const bool readable = all->database_status.ok();
    all->open_metrics =
        MetricsText(table_->runs(), table_->jobs(), readable, MetricsFormat::kOpenMetrics);
    all->text_metrics = MetricsText(table_->runs(), table_->jobs(), readable, MetricsFormat::kText);
    Json document = {{"schema", "nanwatch.runs/1"}, {"runs", Json::array()}};
    for (const TableRun& run : table_->runs()) {
      document["runs"].push_back(RunAsJson(run, AlarmsOf(table_->jobs(), run.job)));
      all->names.emplace_back(run.id, run.job);
    }
    // Without it an empty list would say that there is no run.
    if (!readable) document["database_error"] = all->database_status.message();
    all->run_list = JsonBody(document);
    all->made_ns = clock.monotonic_ns();
    return all;
  }

 private:
  void Open() {
    table_.reset();
    observations_ = std::make_unique<Observations>(FindPlaces(ProcessEnvironment()));
    table_ = std::make_unique<RunTable>(*observations_);
    struct stat status {};
    if (stat(observations_->places().database.c_str(), &status) != 0) return;
    device_ = status.st_dev;
    inode_ = status.st_ino;
  }

  std::unique_ptr<Observations> observations_;
  std::unique_ptr<RunTable> table_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

Answers::Answers() : reader_([this] { ReadWhileAsked(); }) {}

Answers::~Answers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  reader_.join();
}

void Answers::ReadWhileAsked() {
  Reader reader;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return wanted_ || stopping_; });
    if (stopping_) return;
    wanted_ = false;
    lock.unlock();
    std::shared_ptr<const OfAllRuns> read = reader.Read(clock_);
    lock.lock();
    all_runs_ = std::move(read);
    changed_.notify_all();
  }
}

std::shared_ptr<const Answers::OfAllRuns> Answers::AllRuns() {
  const uint64_t now_ns = clock_.monotonic_ns();
  const auto is_younger = [&](uint64_t ns) {
    return all_runs_ != nullptr && all_runs_->made_ns + ns > now_ns;
  };
  std::unique_lock lock(mutex_);
  if (is_younger(kFreshNs)) return all_runs_;
  wanted_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return is_younger(kStaleNs); });
  return all_runs_;
}

HttpAnswer Answers::Health() {
  const Status status = AllRuns()->database_status;
  return status.ok() ? HttpAnswer{.body = "ok\n"} : Unreadable(status);
}

const Answers::OfOneJob& Answers::OneJob(const std::string& job) {
  const uint64_t now_ns = clock_.monotonic_ns();
  OfOneJob& kept = jobs_[job];
  if (kept.made_ns != 0 && now_ns - kept.made_ns < kJobKeptNs) return kept;
  Observations observations(FindPlaces(ProcessEnvironment()));
  const std::vector<RunFacts> facts = observations.FactsWithStatsOfJob(job);
  const Verdict verdict = VerdictOfJob(facts, observations.ExitOfJob(job));
  kept = {.made_ns = clock_.monotonic_ns(),
          .verdict = JsonReport(verdict),
          .page = HtmlData(PageDocument(PageFactsOf(job, facts, verdict, observations))),
          .plain_text = TextReport(verdict, {.live = StillRuns(facts)})};
  while (jobs_.size() > kJobsKeptMax) {
    const auto oldest = std::min_element(
        jobs_.begin(), jobs_.end(),
        [](const auto& a, const auto& b) { return a.second.made_ns < b.second.made_ns; });
    jobs_.erase(oldest);
  }
  return jobs_[job];
}

HttpAnswer Answers::OfRun(const std::string& name, const std::string& what) {
  const std::shared_ptr<const OfAllRuns> all = AllRuns();
  const Result<std::string> job = JobOfName(all->names, name);
  // The database may have it.
  if (!job.ok() && !all->database_status.ok()) return Unreadable(all->database_status);
  if (!job.ok()) return {.status = 404, .body = job.status().message() + "\n"};
  const std::lock_guard lock(jobs_mutex_);
  const OfOneJob& answers = OneJob(*job);
  if (what == "verdict") return {.type = kJsonType, .body = answers.verdict};
  if (what == "page") return {.type = kJsonType, .body = answers.page};
  const HtmlPageOptions options = {
      .nonce = NewNonce(), .plain_text = answers.plain_text, .renew_from = PageDocumentPath(name)};
  return {.type = kHtmlType,
          .body = HtmlPage(Json::parse(answers.page), options),
          .policy = PagePolicy(options)};
}

HttpAnswer Answers::Answer(const HttpRequest& request) {
  const std::string& path = request.path;
  if (path == "/metrics") {
    const MetricsFormat format = FormatFor(request.accept);
    const std::shared_ptr<const OfAllRuns> all = AllRuns();
    return {.type = MetricsType(format),
            .body = format == MetricsFormat::kText ? all->text_metrics : all->open_metrics};
  }
  if (path == "/healthz") return Health();
  if (path == kRunListPath) return {.type = kJsonType, .body = AllRuns()->run_list};
  if (path == "/") return RunListPage();
  const std::optional<RunPath> of_run = RunPathOf(path);
  return of_run ? OfRun(of_run->name, of_run->what) : NotFound();
}

}  // namespace nanwatch
