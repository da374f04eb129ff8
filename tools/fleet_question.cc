// SPDX-License-Identifier: Apache-2.0
#include "tools/fleet_question.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "daemon/fleet/fleet_row.h"
#include "daemon/fleet/otlp_logs.h"
#include "daemon/report/cell_text.h"

namespace nanwatch {
namespace {

constexpr int kRanksNamed = 16;

// As a part of a path.
std::string Escaped(const std::string& text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  constexpr char kPlain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~@";
  std::string escaped;
  for (const char c : text) {
    if (std::string(kPlain).find(c) != std::string::npos) {
      escaped += c;
      continue;
    }
    escaped += '%';
    escaped += kDigits[static_cast<unsigned char>(c) >> 4];
    escaped += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return escaped;
}

// "1, 3, ..."
template <typename Ranks>
std::string ListOf(const Ranks& ranks, int count) {
  std::string text;
  for (int i = 0; i < ranks.size() && i < kRanksNamed; ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return count > kRanksNamed ? text + ", ..." : text;
}

Status NoGatherer(const HttpClientOptions& fleet) {
  return Status(ErrorKind::kCorrupt, "what answered at " + fleet.url + " is no gatherer");
}

Result<std::string> Ask(const HttpClientOptions& fleet, const std::string& path,
                        const std::string& accept) {
  const Result<std::unique_ptr<HttpClient>> client = HttpClient::Make(fleet);
  if (!client.ok()) return client.status();
  const Result<HttpReply> reply = (*client)->Get(path, accept);
  if (!reply.ok()) return reply.status();
  const std::string words = Printable(reply->body.substr(0, reply->body.find('\n')));
  if (reply->status != 200)
    return Status(reply->status == 404 ? ErrorKind::kNotFound : ErrorKind::kIo,
                  "the gatherer answered " + std::to_string(reply->status) + ": " + words);
  if (!reply->headers.contains(kGathererHeader)) return NoGatherer(fleet);
  return reply->body;
}

}  // namespace

Result<std::string> AskFleetVerdictDocument(const HttpClientOptions& fleet,
                                            const std::string& job) {
  return Ask(fleet, "/api/v1/jobs/" + Escaped(job) + "/verdict", "application/json");
}

Result<std::string> AskFleetPage(const HttpClientOptions& fleet, const std::string& job) {
  return Ask(fleet, "/api/v1/jobs/" + Escaped(job) + "/page", "application/json");
}

Result<FleetFacts> AskFleetFacts(const HttpClientOptions& fleet, const std::string& job) {
  const Result<std::string> body = Ask(fleet, "/api/v1/jobs/" + Escaped(job) + "/facts", kOtlpType);
  if (!body.ok()) return body.status();
  FleetFacts facts;
  if (!facts.ParseFromString(*body) || facts.runs().empty()) return NoGatherer(fleet);
  return facts;
}

Result<FleetListing> AskFleetRuns(const HttpClientOptions& fleet) {
  const Result<std::string> body = Ask(fleet, "/api/v1/runs", kOtlpType);
  if (!body.ok()) return body.status();
  FleetRunList list;
  if (!list.ParseFromString(*body)) return NoGatherer(fleet);
  std::sort(list.mutable_runs()->begin(), list.mutable_runs()->end(),
            [](const FleetRunList::One& a, const FleetRunList::One& b) {
              return std::pair(a.facts().run().started_real_ns(), b.id()) >
                     std::pair(b.facts().run().started_real_ns(), a.id());
            });
  FleetListing listing;
  for (const FleetRunList::One& one : list.runs()) {
    const bool has_ended = one.facts().state().ended();
    const bool is_silent = !has_ended && one.heard_ago_s() >= kFleetSilentSeconds;
    listing.runs.push_back(
        {.id = one.id(),
         .job = one.job(),
         .run = one.facts().run(),
         .state = one.facts().state(),
         .live = !has_ended && !is_silent,
         .is_silent = is_silent,
         .newest_steps = {one.facts().steps_read().begin(), one.facts().steps_read().end()}});
    listing.recorded_ns.push_back(one.recorded_ns());
  }
  for (const FleetRunList::Job& job : list.jobs())
    listing.incidents[job.job()] = {job.incidents().begin(), job.incidents().end()};
  return listing;
}

Result<std::string> FleetJobOf(const HttpClientOptions& fleet, const std::string& name) {
  if (!name.empty()) return name;
  const Result<FleetListing> listing = AskFleetRuns(fleet);
  if (!listing.ok()) return listing.status();
  if (listing->runs.empty())
    return Status(ErrorKind::kNotFound, "no run was reported to the gatherer");
  return listing->runs.front().job;
}

Result<FleetVerdict> AskFleetVerdict(const HttpClientOptions& fleet, const std::string& job) {
  const Result<std::string> body =
      Ask(fleet, "/api/v1/jobs/" + Escaped(job) + "/verdict", kOtlpType);
  if (!body.ok()) return body.status();
  FleetVerdict verdict;
  // An empty body is a message, too.
  if (!verdict.ParseFromString(*body) || verdict.verdict().verdict().empty())
    return NoGatherer(fleet);
  return verdict;
}

Result<std::string> AskFleetHosts(const HttpClientOptions& fleet) {
  return Ask(fleet, "/api/v1/hosts", "application/json");
}

std::vector<std::string> RemarksOn(const FleetVerdict& verdict, const std::string& job) {
  std::vector<std::string> remarks;
  const std::string of_all = " of " + std::to_string(verdict.ranks_expected());
  const int behind = verdict.ranks_behind_count();
  const int silent = verdict.ranks_expected() - verdict.ranks_heard() - behind;
  if (silent > 0)
    remarks.push_back(std::to_string(silent) + of_all +
                      (silent == 1 ? " ranks was not heard of: " : " ranks were not heard of: ") +
                      ListOf(verdict.ranks_silent(), silent));
  if (behind > 0)
    remarks.push_back(std::to_string(behind) + of_all +
                      (behind == 1 ? " ranks has not ended, and nothing is heard of it: "
                                   : " ranks have not ended, and nothing is heard of them: ") +
                      ListOf(verdict.ranks_behind(), behind));
  if (verdict.runs_left_out() > 0)
    remarks.push_back(std::to_string(verdict.runs_left_out()) +
                      " of its processes were left out: there are more than a verdict is made of");
  if (verdict.findings_missing() > 0)
    remarks.push_back("findings are still on their way, or are lost: " +
                      std::to_string(verdict.findings_missing()) + " rows");
  if (verdict.launch_by_clocks())
    remarks.push_back(
        "only the clocks of its hosts tell this launch from others of the id, so it is not sure "
        "which processes belong to it: give each launch a NANWATCH_JOB of its own");
  const OutboxLoss& lost = verdict.lost();
  if (lost.findings() + lost.runs() > 0)
    remarks.push_back("the outboxes of its hosts had no room for " +
                      std::to_string(lost.findings()) + " findings and " +
                      std::to_string(lost.runs()) + " states of runs, of this job or others");
  if (lost.refused() > 0)
    remarks.push_back("gatherers refused " + std::to_string(lost.refused()) +
                      " rows of its hosts for good, of this job or others");
  if (lost.outboxes() > 0)
    remarks.push_back(
        "a host of it lost its database, with what was not sent yet: its daemon's log says more");
  if (verdict.other_launches_size() > 0) {
    remarks.push_back("this is " + job + "@" + verdict.launch() +
                      ", the newest launch of that id; before it: ");
    for (int i = 0; i < verdict.other_launches_size(); ++i)
      remarks.back() += (i == 0 ? "" : ", ") + job + "@" + verdict.other_launches(i);
  }
  return remarks;
}

}  // namespace nanwatch
