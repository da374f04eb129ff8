// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/answers.h"

#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "daemon/base/clock.h"
#include "daemon/correlate/wire_names.h"
#include "daemon/report/json_report.h"
#include "daemon/report/page/html_page.h"
#include "daemon/report/text_report.h"
#include "tools/job_page.h"
#include "tools/job_verdict.h"
#include "tools/run_words.h"
#include "tools/serve/metrics.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kTableKeptNs = 1'000'000'000;
constexpr uint64_t kJobKeptNs = 2'000'000'000;
constexpr size_t kJobsKeptMax = 8;

constexpr char kJsonType[] = "application/json";
constexpr char kHtmlType[] = "text/html; charset=utf-8";

HttpAnswer NotFound() {
  return {.status = 404,
          .body = "there is nothing here: / lists the runs, /metrics has them for Prometheus\n"};
}

Json RunJson(const TableRun& run) {
  return {{"id", run.id},
          {"job", run.job},
          {"rank", run.run.rank()},
          {"world_size", run.run.world_size()},
          {"pid", run.run.pid()},
          {"host", run.run.host()},
          {"program", run.run.program()},
          {"torch", run.run.torch_version()},
          {"level", LevelName(run.state.level())},
          {"state", run.state_text},
          {"live", run.live},
          {"step", run.step},
          {"loss", run.loss ? JsonNumber(*run.loss) : Json()},
          {"findings", run.state.values_bad()},
          {"lost", LostOf(run.state)},
          {"started_at", FormatUtc(run.run.started_real_ns())}};
}

std::string TextOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

void Answers::RenewTable() {
  const uint64_t now_ns = clock_.monotonic_ns();
  if (source_ != nullptr && now_ns - renewed_ns_ < kTableKeptNs) return;
  struct stat status {};
  const bool known = source_ != nullptr &&
                     stat(source_->observations.places().database.c_str(), &status) == 0 &&
                     source_->device == status.st_dev && source_->inode == status.st_ino;
  if (!known) {
    source_ = std::make_unique<Source>(FindPlaces(ProcessEnvironment()));
    if (stat(source_->observations.places().database.c_str(), &status) == 0) {
      source_->device = status.st_dev;
      source_->inode = status.st_ino;
    }
  }
  source_->table.Refresh();
  renewed_ns_ = now_ns;
  open_metrics_ = text_metrics_ = run_list_ = "";
}

HttpAnswer Answers::Metrics(const HttpRequest& request) {
  const MetricsFormat format = FormatFor(request.accept);
  const std::lock_guard lock(table_mutex_);
  RenewTable();
  std::string& text = format == MetricsFormat::kOpenMetrics ? open_metrics_ : text_metrics_;
  if (text.empty()) {
    const RunTable& table = source_->table;
    text = MetricsText(table.runs(), table.jobs(), table.database_status().ok(), format);
  }
  return {.type = MetricsType(format), .body = text};
}

HttpAnswer Answers::RunList() {
  const std::lock_guard lock(table_mutex_);
  RenewTable();
  if (run_list_.empty()) {
    Json document = {{"schema", "nanwatch.runs/1"}, {"runs", Json::array()}};
    for (const TableRun& run : source_->table.runs()) document["runs"].push_back(RunJson(run));
    run_list_ = TextOf(document);
  }
  return {.type = kJsonType, .body = run_list_};
}

HttpAnswer Answers::Health() {
  const std::lock_guard lock(table_mutex_);
  RenewTable();
  const Status& status = source_->table.database_status();
  if (status.ok()) return {.body = "ok\n"};
  return {.status = 503, .body = "the database cannot be read: " + status.message() + "\n"};
}

const Answers::JobAnswers& Answers::OfJob(const std::string& job) {
  const uint64_t now_ns = clock_.monotonic_ns();
  JobAnswers& kept = jobs_[job];
  if (kept.made_ns != 0 && now_ns - kept.made_ns < kJobKeptNs) return kept;
  // A reader of its own: a page may take a while, and the metrics do not wait.
  jobs_source_ = std::make_unique<Source>(FindPlaces(ProcessEnvironment()));
  Observations& observations = jobs_source_->observations;
  const std::vector<RunFacts> facts = observations.FactsWithStatsOfJob(job);
  const Verdict verdict = VerdictOfJob(facts, observations.ExitOfJob(job));
  kept = {.made_ns = clock_.monotonic_ns(),
          .verdict = JsonReport(verdict),
          .page = HtmlData(PageDocument(PageFactsOf(job, facts, verdict, observations))),
          .plain_text = TextReport(verdict, TextOptions())};
  while (jobs_.size() > kJobsKeptMax) {
    const auto oldest = std::min_element(
        jobs_.begin(), jobs_.end(),
        [](const auto& a, const auto& b) { return a.second.made_ns < b.second.made_ns; });
    jobs_.erase(oldest);
  }
  return jobs_[job];
}

HttpAnswer Answers::OfRun(const std::string& name, const std::string& what) {
  Result<std::string> job = Status(ErrorKind::kNotFound, "");
  {
    const std::lock_guard lock(table_mutex_);
    RenewTable();
    job = source_->table.JobOfName(name);
  }
  if (!job.ok()) return {.status = 404, .body = job.status().message() + "\n"};
  const std::lock_guard lock(jobs_mutex_);
  const JobAnswers& answers = OfJob(*job);
  if (what == "verdict") return {.type = kJsonType, .body = answers.verdict};
  if (what == "page") return {.type = kJsonType, .body = answers.page};
  const HtmlPageOptions options = {.nonce = NewNonce(),
                                   .plain_text = answers.plain_text,
                                   .renew_from = "/api/v1/runs/" + name + "/page"};
  return {.type = kHtmlType,
          .body = HtmlPage(Json::parse(answers.page), options),
          .policy = PagePolicy(options)};
}

HttpAnswer Answers::Answer(const HttpRequest& request) {
  const std::string& path = request.path;
  if (path == "/metrics") return Metrics(request);
  if (path == "/healthz") return Health();
  if (path == "/api/v1/runs") return RunList();
  if (path == "/") {
    const HtmlPageOptions options = {
        .nonce = NewNonce(), .plain_text = "", .renew_from = "/api/v1/runs"};
    return {.type = kHtmlType, .body = HtmlRunList(options), .policy = PagePolicy(options)};
  }
  constexpr std::string_view kApi = "/api/v1/runs/", kPages = "/runs/";
  const std::string_view rest = path.starts_with(kApi) ? std::string_view(path).substr(kApi.size())
                                : path.starts_with(kPages)
                                    ? std::string_view(path).substr(kPages.size())
                                    : std::string_view();
  const size_t slash = rest.find('/');
  const std::string name(rest.substr(0, slash));
  const std::string what(slash == std::string_view::npos ? "" : rest.substr(slash + 1));
  const bool is_page = path.starts_with(kPages) && slash == std::string_view::npos;
  const bool is_api = path.starts_with(kApi) && (what == "verdict" || what == "page");
  return name.empty() || !(is_page || is_api) ? NotFound() : OfRun(name, what);
}

}  // namespace nanwatch
