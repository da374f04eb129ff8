// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/fleet_pages.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "daemon/report/page/html_page.h"
#include "tools/fleet_page.h"
#include "tools/fleet_question.h"
#include "tools/run_json.h"
#include "tools/run_words.h"
#include "tools/serve/page_answers.h"
#include "tools/serve/run_table.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

// Of a gatherer that is away, it is the gatherer's status.
HttpAnswer Failure(const Status& why) {
  return {.status = why.kind() == ErrorKind::kNotFound    ? 404
                    : why.kind() == ErrorKind::kAmbiguous ? 404
                                                          : 502,
          .body = why.message() + "\n"};
}

}  // namespace

HttpAnswer FleetPages::RunList() const {
  const Result<FleetListing> listing = AskFleetRuns(fleet_);
  if (!listing.ok()) return Failure(listing.status());
  Json document = {{"schema", "nanwatch.runs/1"},
                   {"about", "runs of the fleet at " + fleet_.url},
                   {"runs", Json::array()}};
  for (const SeenRun& run : listing->runs) {
    const std::string state = StateOf(run);
    Json json =
        RunJson({.id = run.id,
                 .job = run.job,
                 .run = run.run,
                 .state = run.state,
                 .state_text = state,
                 .live = run.live,
                 .step = StepOf(run),
                 .loss = run.state.has_loss() ? std::optional(run.state.loss()) : std::nullopt});
    const auto incidents = listing->incidents.find(run.job);
    json["job_anomalies"] = incidents == listing->incidents.end() ? 0 : incidents->second.size();
    document["runs"].push_back(std::move(json));
  }
  return {.type = kJsonType, .body = JsonBody(document)};
}

// A job that was not heard of lately is known by its whole id alone.
Result<std::string> FleetPages::JobOf(const std::string& name) const {
  const Result<FleetListing> listing = AskFleetRuns(fleet_);
  if (!listing.ok()) return listing.status();
  std::vector<std::pair<std::string, std::string>> names;
  for (const SeenRun& run : listing->runs) names.emplace_back(run.id, run.job);
  Result<std::string> job = JobOfName(names, name);
  return job.status().kind() == ErrorKind::kNotFound ? Result<std::string>(name) : job;
}

HttpAnswer FleetPages::OfRun(const std::string& name, const std::string& what) const {
  const Result<std::string> job = JobOf(name);
  if (!job.ok()) return Failure(job.status());
  if (what == "verdict") {
    const Result<std::string> document = AskFleetVerdictDocument(fleet_, *job);
    return document.ok() ? HttpAnswer{.type = kJsonType, .body = *document}
                         : Failure(document.status());
  }
  const Result<FleetVerdict> verdict = AskFleetVerdict(fleet_, *job);
  if (!verdict.ok()) return Failure(verdict.status());
  if (what == "page") {
    const Result<Json> document = FleetPageDocument(fleet_, *job, *verdict);
    return document.ok() ? HttpAnswer{.type = kJsonType, .body = HtmlData(*document)}
                         : Failure(document.status());
  }
  HtmlPageOptions options = {
      .nonce = NewNonce(), .plain_text = "", .renew_from = PageDocumentPath(name)};
  const Result<std::string> page = FleetPageFile(fleet_, *job, *verdict, options);
  if (!page.ok()) return Failure(page.status());
  return {.type = kHtmlType, .body = *page, .policy = PagePolicy(options)};
}

HttpAnswer FleetPages::Answer(const HttpRequest& request) const {
  const std::string& path = request.path;
  if (path == kRunListPath) return RunList();
  if (path == "/healthz") {
    const Result<FleetListing> listing = AskFleetRuns(fleet_);
    return listing.ok() ? HttpAnswer{.body = "ok\n"} : Failure(listing.status());
  }
  if (path == "/") return RunListPage();
  if (const std::optional<RunPath> of_run = RunPathOf(path))
    return OfRun(of_run->name, of_run->what);
  return {
      .status = 404,
      .body = "there is nothing here: / lists the runs; metrics are those of nanwatch-gather\n"};
}

}  // namespace nanwatch
