// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/page/page_document.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "daemon/correlate/run_summary.h"
#include "daemon/report/coverage_text.h"
#include "daemon/report/incident_text.h"
#include "daemon/report/incident_words.h"
#include "daemon/report/json_report.h"
#include "daemon/report/kernel_text.h"
#include "daemon/report/page/page_origin.h"
#include "daemon/report/page/page_series.h"
#include "daemon/report/text_layout.h"
#include "daemon/report/verdict_words.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kIncidentsMax = 100;

Json VerdictJson(const Verdict& verdict) {
  const VerdictWords words = WordsOf(verdict);
  std::string where;
  if (words.word == "ANOMALY") {
    const Finding& origin = verdict.incidents(0).origin();
    where = SiteText(origin) + (origin.source().empty() ? "" : ", " + origin.source());
  }
  return {{"word", words.word},         {"sentence", PageText(Unglued(words.sentence))},
          {"where", PageText(where)},   {"why", Unglued(words.why)},
          {"evidence", words.evidence}, {"remedy", Unglued(words.remedy)}};
}

Json Pair(const char* label, std::string value) {
  return {{"label", label}, {"value", std::move(value)}};
}

std::string EndText(const RunInfo& run) {
  if (run.has_signal() && run.signal() != 0)
    return "killed by signal " + std::to_string(run.signal());
  if (run.has_exit_code()) return "exit status " + std::to_string(run.exit_code());
  return "";
}

std::string TimeText(const std::string& rfc3339) {
  return rfc3339.empty() ? "" : DayAndTime(rfc3339) + " UTC";
}

// "train.py on node7, run 7f3a21c0, 2026-11-26 11:40:02 UTC": which job this is.
std::string AboutText(const PageFacts& facts) {
  const RunInfo& run = facts.verdict.run();
  std::string text = run.program().empty() ? facts.job : Shorten(run.program(), 60);
  if (!run.host().empty()) text += " on " + run.host();
  if (!run.id().empty()) text += ", run " + ShortId(run.id());
  if (!run.started_at().empty()) text += ", started " + TimeText(run.started_at());
  return text;
}

Json RunJson(const PageFacts& facts) {
  const RunInfo& run = facts.verdict.run();
  Json rows = Json::array();
  const auto add = [&rows](const char* label, const std::string& value) {
    if (!value.empty()) rows.push_back(Pair(label, PageText(value)));
  };
  add("Program", run.program());
  add("Command", CommandLine(run.command()));
  add("Directory", run.directory());
  add("Job", facts.job);
  add("Run", run.id());
  if (run.world_size() > 1)
    add("Rank", std::to_string(run.rank()) + " of " + std::to_string(run.world_size()));
  if (facts.verdict.runs_size() > 1) add("Processes", std::to_string(facts.verdict.runs_size()));
  add("Host", run.host());
  add("Started", TimeText(run.started_at()));
  add("Ended", run.has_ended_at() ? TimeText(run.ended_at()) : "");
  add("Result", EndText(run));
  add("torch", run.torch());
  add("Python", run.python());
  add("Device", run.device());
  add("Level", run.level());
  return rows;
}

Json IncidentsJson(const Verdict& verdict) {
  Json rows = Json::array();
  for (const Incident& incident : verdict.incidents()) {
    if (rows.size() == kIncidentsMax) break;
    const Finding& origin = incident.origin();
    std::string remedy = ReasonOf(incident).remedy;
    if (incident.severity() == "info") remedy = "nothing: it did no harm";
    if (!incident.expected_by().empty()) remedy = RuleText(incident);
    rows.push_back({{"severity", incident.severity()},
                    {"step", origin.step()},
                    {"rank", origin.rank()},
                    {"what", PageText(WhatText(origin))},
                    {"where", PageText(SiteText(origin))},
                    {"line", PageText(origin.source())},
                    {"reach", Json(incident.reach().begin() == incident.reach().end()
                                       ? std::vector<std::string>()
                                       : std::vector<std::string>(incident.reach().begin(),
                                                                  incident.reach().end()))},
                    {"findings", incident.count()},
                    {"remedy", PageText(remedy)}});
  }
  return rows;
}

Json WarningsJson(const Verdict& verdict) {
  Json rows = Json::array();
  for (const Warning& warning : verdict.warnings()) {
    if (rows.size() == kIncidentsMax) break;
    rows.push_back({{"severity", warning.severity()},
                    {"step", warning.step()},
                    {"rank", warning.rank()},
                    {"id", warning.id()},
                    {"evidence", PageText(warning.evidence())},
                    {"cause", PageText(warning.cause())},
                    {"remedy", PageText(warning.fix())},
                    {"param", PageText(warning.param())}});
  }
  return rows;
}

Json CheckpointsJson(const Verdict& verdict) {
  Json rows = Json::array();
  for (const SavedCheckpoint& saved : verdict.checkpoints()) {
    rows.push_back({{"file", PageText(saved.file())},
                    {"state", saved.state()},
                    {"step", saved.step()},
                    {"rank", saved.rank()},
                    {"saved_at", TimeText(saved.saved_at())},
                    {"tensors", saved.tensors()},
                    {"bad", saved.bad()},
                    {"unread", saved.unread()},
                    {"first_bad", PageText(saved.first_bad())}});
  }
  return rows;
}

Json ParameterJson(const ParameterReport& row) {
  const auto number = [](bool known, double value) { return known ? JsonNumber(value) : Json(); };
  const bool read = row.has_gradient_norm();
  return Json::array({PageText(row.name()), PageText(row.dtype()), row.numel(), row.gradient(),
                      number(read, row.gradient_norm()), number(read, row.gradient_max_abs()),
                      number(read, row.gradient_zero_share()),
                      number(row.has_update_ratio(), row.update_ratio())});
}

Json LayerJson(const LayerReport& row) {
  return Json::array({PageText(row.layer().empty() ? row.root() : row.layer()),
                      PageText(row.dtype()), JsonNumber(row.largest()), row.at_least(),
                      row.has_headroom() ? JsonNumber(row.headroom()) : Json()});
}

// The newest snapshot of each optimizer of the headline's process, else of any.
Json SnapshotsJson(const PageFacts& facts) {
  std::map<uint32_t, const SnapshotReport*> newest;
  const auto take = [&](bool of_headline) {
    for (const SnapshotReport& snapshot : facts.stats.snapshots()) {
      if (of_headline && snapshot.run() != facts.verdict.run().id()) continue;
      newest[snapshot.optimizer_index()] = &snapshot;
    }
  };
  take(true);
  if (newest.empty()) take(false);
  Json all = Json::array();
  for (const auto& [optimizer, snapshot] : newest) {
    Json parameters = Json::array(), layers = Json::array();
    for (const ParameterReport& row : snapshot->parameters()) {
      if (parameters.size() < kPageParametersMax) parameters.push_back(ParameterJson(row));
    }
    for (const LayerReport& row : snapshot->layers()) {
      if (layers.size() < kPageParametersMax) layers.push_back(LayerJson(row));
    }
    const auto rows = static_cast<size_t>(snapshot->parameters_size());
    all.push_back({{"step", snapshot->step()},
                   {"rank", snapshot->rank()},
                   {"optimizer", PageText(snapshot->optimizer())},
                   {"left_out", snapshot->left_out() + (rows - parameters.size())},
                   {"parameters", std::move(parameters)},
                   {"layers", std::move(layers)}});
  }
  return all;
}

Json CoverageJson(const Verdict& verdict) {
  const Coverage& coverage = verdict.coverage();
  Json rows = Json::array();
  rows.push_back(Pair("Steps", Grouped(coverage.steps())));
  const std::string of_all = verdict.runs_size() > 1 ? ", in all processes" : "";
  for (const char* level : {"full", "sampled", "canary", "idle"}) {
    const uint64_t steps = StepsAtLevel(coverage, level);
    if (steps == 0) continue;
    rows.push_back(
        {{"label", std::string("Steps at level ") + level + of_all}, {"value", Grouped(steps)}});
  }
  rows.push_back(Pair("Ops seen", Grouped(coverage.ops_seen())));
  rows.push_back(Pair("Tensors checked", Grouped(coverage.tensors_checked())));
  rows.push_back(Pair("Bytes checked", Grouped(coverage.bytes_checked())));
  rows.push_back(Pair("Records lost", Grouped(coverage.lost_events())));
  if (coverage.records_thinned() > 0)
    rows.push_back(Pair("Records left out", Grouped(coverage.records_thinned())));
  if (coverage.step_summaries_lost() > 0) {
    rows.push_back(Pair("Step summaries lost", Grouped(coverage.step_summaries_lost()) + " (" +
                                                   std::string(kSummariesLost) + ")"));
  }
  rows.push_back(Pair("Cost", OverheadText(coverage)));
  Json unchecked = Json::array();
  const std::map<std::string, uint64_t> sorted(coverage.unchecked().begin(),
                                               coverage.unchecked().end());
  for (const auto& [reason, count] : sorted) {
    unchecked.push_back({{"reason", PageText(reason)},
                         {"count", count},
                         {"meaning", std::string(MeaningOfUnchecked(reason))}});
  }
  Json problems = Json::array();
  for (const std::string& problem : verdict.rule_problems()) problems.push_back(PageText(problem));
  return {{"rows", std::move(rows)},
          {"tensors_checked", coverage.tensors_checked()},
          {"unchecked", std::move(unchecked)},
          {"rule_problems", std::move(problems)}};
}

}  // namespace

Json PageDocument(const PageFacts& facts) {
  Json page = {
      {"schema", "nanwatch.page/1"},        {"version", facts.version},
      {"made_at", TimeText(facts.made_at)}, {"live", facts.live},
      {"job", PageText(facts.job)},         {"program", PageText(facts.verdict.run().program())},
      {"about", PageText(AboutText(facts))}};
  page["verdict"] = VerdictJson(facts.verdict);
  page["path"] = PathJson(facts.verdict);
  page["origin"] = OriginJson(facts);
  page["incidents"] = IncidentsJson(facts.verdict);
  page["warnings"] = WarningsJson(facts.verdict);
  page["checkpoints"] = CheckpointsJson(facts.verdict);
  page["series"] = SeriesJson(facts);
  page["marks"] = MarksJson(facts.verdict);
  page["heat"] = HeatJson(facts);
  page["strip"] = StripJson(facts);
  page["snapshots"] = SnapshotsJson(facts);
  page["coverage"] = CoverageJson(facts.verdict);
  page["run"] = RunJson(facts);
  return page;
}

}  // namespace nanwatch
