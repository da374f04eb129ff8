// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/gather_answers.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "daemon/fleet/held_row.h"
#include "daemon/fleet/otlp_logs.h"

namespace nanwatch {
namespace {

constexpr int kRetrySeconds = 1;

HttpAnswer Text(int status, const std::string& text, int retry_after_s = 0) {
  return {.status = status, .body = text + "\n", .retry_after_s = retry_after_s};
}

// "" where a request may be sent again, or is a mistake of somebody who asks.
std::string_view WhatIsRefused(int status) {
  switch (status) {
    case 400:
    case 415:
      return "requests that are no OTLP logs";
    case 401:
      return "requests without the right token";
    case 403:
      return "rows of daemons that belong to another tenant";
    case 413:
      return "requests that are too long, as they are or inflated,";
    case 421:
      return "requests to another host name";
    default:
      return "";
  }
}

}  // namespace

void GatherAnswers::OnFailure(int status) {
  const std::string_view what = WhatIsRefused(status);
  if (what.empty()) return;
  ++requests_refused_;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!said_refused_.insert(status).second) return;
  }
  report_(
      fmt::format("{} are refused ({}); further ones are only counted, in /metrics", what, status));
}

HttpAnswer GatherAnswers::Answer(const HttpRequest& request) {
  if (request.path == "/v1/logs")
    return request.is_post ? TakeLogs(request) : Text(405, "send logs by POST");
  if (request.is_post) return Text(404, "logs are taken at /v1/logs");
  if (request.path == "/metrics") return Metrics();
  if (request.path == "/healthz") return Health();
  if (request.path.starts_with("/api/v1/")) return fleet_.Answer(request);
  return Text(404, "there is nothing here: see /v1/logs, /api/v1/jobs, /metrics, /healthz");
}

HttpAnswer GatherAnswers::TakeLogs(const HttpRequest& request) {
  ++requests_;
  if (request.type.substr(0, request.type.find(';')) != kOtlpType)
    return Text(415, std::string("send OTLP as ") + kOtlpType);
  Result<DecodedLogs> logs = DecodeLogs(request.body);
  if (!logs.ok()) return Text(400, logs.status().message());
  for (FleetRow& row : logs->rows) row.tenant = request.tenant;
  std::optional<HeldRow> held;
  if (const auto header = request.headers.find(kHeldRowHeader); header != request.headers.end())
    held = ParseHeldRow(header->second);
  if (held) held->tenant = request.tenant;
  const Submitted submitted = queue_.Submit(std::move(logs->rows), std::move(held));
  Note(submitted.status);
  switch (submitted.status.kind()) {
    case ErrorKind::kNone:
      break;
    case ErrorKind::kBusy:
      return Text(429, submitted.status.message(), kRetrySeconds);
    // Not 4xx: a sender would throw the rows away, and it is the schema or a right that is wrong.
    default:
      return Text(503, submitted.status.message(), kRetrySeconds);
  }
  // Its sender keeps them: the token of another tenant is a mistake that can be put right.
  if (submitted.has_foreign)
    return Text(403, "the daemon that these rows are of belongs to another tenant: send its token");
  const uint64_t rejected = logs->rejected + submitted.refused;
  const std::string& reason = logs->rejected > 0 ? logs->reason : submitted.why;
  rejected_ += rejected;
  if (rejected > 0 && !said_rejected_.exchange(true))
    report_("records that are no rows of nanwatch's were rejected (" + reason +
            "); further ones are only counted, in /metrics");
  HttpAnswer answer = {.type = kOtlpType, .body = EncodeLogsAnswer(rejected, reason)};
  if (submitted.is_held_missing) {
    ++held_missing_;
    if (!said_missing_.exchange(true))
      report_(
          "the database lacks rows that it had: it was restored from a backup, or another has "
          "taken its place; hosts send again what they still have");
    answer.headers = {{kHeldRowHeader, kRowIsMissing}};
  }
  return answer;
}

// Once for each change: a database that is away for an hour is one line.
void GatherAnswers::Note(const Status& status) {
  if (status.kind() == ErrorKind::kBusy) return;
  if (in_trouble_.exchange(!status.ok()) == !status.ok()) return;
  said_missing_ = false;  // another failure may have followed
  report_(status.ok()
              ? "the database takes rows again"
              : "rows cannot be written, and are kept by those who send them: " + status.message());
}

HttpAnswer GatherAnswers::Metrics() const {
  const RowQueueCounts& counts = queue_.counts();
  std::string text;
  const auto add = [&text](const char* name, const char* type, const char* help, uint64_t value) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, value);
  };
  add("nanwatch_gather_requests_total", "counter", "Requests with logs", requests_);
  add("nanwatch_gather_requests_refused_total", "counter",
      "Requests of any kind that were refused for good: by their token, length or form",
      requests_refused_);
  add("nanwatch_gather_rows_written_total", "counter", "Rows that were new", counts.written);
  add("nanwatch_gather_rows_duplicate_total", "counter",
      "Rows that were there already, or older than what is there", counts.duplicates);
  add("nanwatch_gather_rows_refused_total", "counter", "Rows that found the queue full",
      counts.refused);
  add("nanwatch_gather_records_rejected_total", "counter", "Records that are no rows", rejected_);
  add("nanwatch_gather_rows_missing_total", "counter",
      "Rows that were acknowledged once and are not there: the database was restored",
      held_missing_);
  add("nanwatch_gather_commits_total", "counter", "Transactions", counts.commits);
  add("nanwatch_gather_commit_failures_total", "counter", "Transactions that failed",
      counts.failures);
  add("nanwatch_gather_queue_rows", "gauge", "Rows that wait for the database", counts.waiting);
  text += fmt::format(
      "# HELP {0} How long rows wait for the database that wait longest\n# TYPE {0} gauge\n{0} "
      "{1}\n",
      "nanwatch_gather_lag_seconds", static_cast<double>(queue_.longest_wait().count()) / 1e3);
  add("nanwatch_gather_database_writable", "gauge", "0 where the newest transaction failed, else 1",
      queue_.newest().ok() ? 1 : 0);
  return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = std::move(text)};
}

HttpAnswer GatherAnswers::Health() const {
  const Status newest = queue_.newest();
  return newest.ok() ? Text(200, "ok") : Text(503, newest.message());
}

}  // namespace nanwatch
