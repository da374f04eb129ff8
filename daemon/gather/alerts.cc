// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/alerts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "daemon/gather/fleet_documents.h"
#include "daemon/report/cell_text.h"
#include "daemon/report/incident_words.h"
#include "daemon/report/text_layout.h"
#include "daemon/report/verdict_words.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

std::string DescriptionOf(const FleetVerdict& fleet, const std::string& job) {
  std::string text = Printable(IncidentLine(fleet.verdict(), fleet.verdict().incidents(0))) + ".";
  const int unheard = fleet.ranks_expected() - fleet.ranks_heard();
  if (unheard > 0)
    text += fmt::format(" {} of {} ranks are not heard of, so another one may have begun it.",
                        unheard, fleet.ranks_expected());
  return text + " 'nanwatch report " + Printable(job) + "@" + fleet.launch() +
         " --fleet URL' says why and what to do.";
}

std::string NameOf(const FleetAlert& alert) {
  return alert.tenant + '\n' + alert.job + '\n' + alert.launch;
}

Json AsJson(const FleetAlert& alert, uint64_t now_ns, const std::string& pages) {
  Json labels = {{"alertname", "NanwatchAnomaly"},
                 {"severity", "critical"},
                 {"job", alert.job},
                 {"launch", alert.launch}};
  if (!alert.tenant.empty()) labels["tenant"] = alert.tenant;
  Json json = {
      {"labels", std::move(labels)},
      {"annotations", {{"summary", alert.summary}, {"description", alert.description}}},
      {"startsAt", FormatUtc(alert.begun_ns)},
      {"endsAt", FormatUtc(alert.ended_ns != 0 ? alert.ended_ns : now_ns + kAlertHoldsNs)}};
  if (!pages.empty()) json["generatorURL"] = pages + "/runs/" + alert.job + "@" + alert.launch;
  return json;
}

}  // namespace

void Alerts::Step() {
  Status looked = BeginNew();
  if (looked.ok() && clock_.monotonic_ns() - ends_looked_ns_ >= kAlertEndLookNs) looked = EndOld();
  Note(database_, looked, "the database answers again");
  if (is_due_ || clock_.monotonic_ns() - told_ns_ >= kAlertRepeatNs)
    Note(manager_, Tell(), "alerts are taken again");
}

// Once for each change.
void Alerts::Note(Status& known, const Status& now, const std::string& well_again) {
  if (known.ok() != now.ok()) report_(now.ok() ? well_again : now.message());
  known = now;
}

Status Alerts::BeginNew() {
  const Result<std::vector<AlarmingJob>> jobs =
      book_.AlarmingJobs(has_looked_ ? kAlertAgainSeconds : kAlertFirstLookSeconds);
  if (!jobs.ok()) return jobs.status();
  std::map<std::pair<std::string, std::string>, int64_t> seen;
  for (const AlarmingJob& job : *jobs) {
    const std::pair name(job.tenant, job.job);
    const auto before = judged_.find(name);
    if (before == judged_.end() || before->second != job.incidents) {
      if (Status judged = Judge(job); !judged.ok()) return judged;
    }
    judged_[name] = job.incidents;
    seen[name] = job.incidents;
  }
  judged_ = std::move(seen);
  has_looked_ = true;
  return Status();
}

Status Alerts::Judge(const AlarmingJob& job) {
  const Result<JudgedLaunch> judged = JudgeJob({reader_, job.tenant, clock_}, job.job);
  // Its state is on the way, or is gone.
  if (judged.status().kind() == ErrorKind::kNotFound) return Status();
  if (!judged.ok()) return judged.status();
  const Verdict& verdict = judged->fleet.verdict();
  if (verdict.verdict() != "anomaly" || verdict.incidents().empty()) return Status();
  is_due_ = true;
  return book_.Begin(
      {.tenant = job.tenant,
       .job = job.job,
       .launch = judged->fleet.launch(),
       .summary = Printable("job " + job.job + ": " + Unglued(WordsOf(verdict).sentence)),
       .description = DescriptionOf(judged->fleet, job.job)});
}

Status Alerts::EndOld() {
  const Result<std::vector<FleetAlert>> open = book_.Open();
  if (!open.ok()) return open.status();
  for (const FleetAlert& alert : *open) {
    // It has to be told first, and for long enough.
    const auto since = firing_since_ns_.find(NameOf(alert));
    if (alert.ended_ns != 0 || since == firing_since_ns_.end() ||
        clock_.monotonic_ns() - since->second < options_.least_ns)
      continue;
    const Result<bool> goes_on = GoesOn({reader_, alert.tenant, clock_}, alert.job, alert.launch);
    if (!goes_on.ok()) return goes_on.status();
    if (*goes_on) continue;
    if (Status ended = book_.End(alert); !ended.ok()) return ended;
    is_due_ = true;
  }
  ends_looked_ns_ = clock_.monotonic_ns();
  return Status();
}

Status Alerts::Tell() {
  const Result<std::vector<FleetAlert>> open = book_.Open();
  if (!open.ok()) return open.status();
  Json all = Json::array();
  for (const FleetAlert& alert : *open)
    all.push_back(AsJson(alert, clock_.real_ns(), options_.pages));
  if (!all.empty()) {
    const Result<HttpReply> reply = send_(all.dump(-1, ' ', false, Json::error_handler_t::replace));
    if (!reply.ok()) return reply.status();
    if (reply->status / 100 != 2)
      return Status(ErrorKind::kIo,
                    fmt::format("the Alertmanager answered {}: {}", reply->status,
                                Printable(reply->body.substr(0, reply->body.find('\n')))));
  }
  told_ns_ = clock_.monotonic_ns();
  is_due_ = false;
  std::map<std::string, uint64_t> firing;
  for (const FleetAlert& alert : *open) {
    if (alert.ended_ns == 0) {
      const auto since = firing_since_ns_.find(NameOf(alert));
      firing[NameOf(alert)] = since != firing_since_ns_.end() ? since->second : told_ns_;
      continue;
    }
    if (Status settled = book_.Settle(alert); !settled.ok()) return settled;
  }
  firing_since_ns_ = std::move(firing);
  return Status();
}

}  // namespace nanwatch
