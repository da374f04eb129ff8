// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/correlate.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "daemon/correlate/candidates.h"
#include "daemon/correlate/checkpoints.h"
#include "daemon/correlate/death_rule.h"
#include "daemon/correlate/follow_rule.h"
#include "daemon/correlate/incident.h"
#include "daemon/correlate/lineage.h"
#include "daemon/correlate/rank_folding.h"
#include "daemon/correlate/reasons.h"
#include "daemon/correlate/run_summary.h"
#include "daemon/correlate/scaler_rule.h"
#include "daemon/correlate/trainings.h"
#include "daemon/correlate/unapplied_rule.h"
#include "daemon/correlate/unknown_rule.h"

namespace nanwatch {
namespace {

std::vector<Lineage> TraceRuns(const std::vector<const RunFacts*>& runs, const Excused& excused) {
  std::vector<Lineage> lineages;
  lineages.reserve(runs.size());
  for (const RunFacts* facts : runs) lineages.emplace_back(*facts, excused);
  return lineages;
}

std::vector<const RunFacts*> InRankOrder(const std::vector<RunFacts>& runs) {
  std::vector<const RunFacts*> ordered;
  for (const RunFacts& facts : runs) ordered.push_back(&facts);
  std::stable_sort(ordered.begin(), ordered.end(), [](const RunFacts* a, const RunFacts* b) {
    const auto order = [](const Run& run) {
      return std::make_tuple(run.attempt(), run.rank(), run.started_real_ns(), run.nonce());
    };
    return order(a->run()) < order(b->run());
  });
  return ordered;
}

// In a notebook the newest training comes first: what an earlier one left is known by then.
bool IsOfNewerTraining(const FinishedIncident& a, const FinishedIncident& b) {
  const auto order = [](const FinishedIncident& finished) {
    const auto& [incident, draft] = finished;
    const bool harmless = incident.severity() == "info";
    const bool by_training = !harmless && draft->lineage->clock().IsNotebook();
    return std::make_pair(harmless, by_training ? -incident.origin().training() : 0);
  };
  return order(a) < order(b);
}

void AddIncidents(const std::vector<Lineage>& runs, uint32_t explained, Correlation& correlation) {
  Drafts drafts = GatherIncidents(runs);
  FoldReceived(runs, drafts);
  FoldCopies(drafts);
  std::vector<FinishedIncident> incidents;
  for (const auto& [key, draft] : drafts) {
    incidents.emplace_back(Finish(draft), &draft);
    AddCandidates(draft, drafts, incidents.back().first);
  }
  std::stable_sort(incidents.begin(), incidents.end(), IsMoreImportant);
  std::stable_sort(incidents.begin(), incidents.end(), IsOfNewerTraining);
  if (explained > 0 && explained <= incidents.size()) {
    const auto& [incident, draft] = incidents[explained - 1];
    correlation.explanation.set_severity(incident.severity());
    AddReasons(*draft, incident, drafts, correlation.explanation);
  }
  for (auto& [incident, draft] : incidents) {
    *correlation.verdict.add_incidents() = std::move(incident);
    correlation.excuse_keys.push_back(ExcuseKeyOf(*draft->origin));
  }
}

// Gradients that a GradScaler found bad, at a level that saw no op make them.
bool SkippedUpdates(const std::vector<RunFacts>& runs) {
  return std::any_of(runs.begin(), runs.end(), [](const RunFacts& facts) {
    return facts.state().clocks().scaler_skips() > 0;
  });
}

// Sets the verdict's word, and why it is `unknown` where it is.
void Conclude(const std::vector<RunFacts>& runs, const std::vector<Lineage>& lineages,
              Verdict& verdict) {
  const auto& incidents = verdict.incidents();
  const bool anomaly =
      std::any_of(incidents.begin(), incidents.end(),
                  [](const Incident& incident) { return incident.severity() != "info"; });
  if (anomaly) {
    verdict.set_verdict("anomaly");
    return;
  }
  verdict.set_unknown_because(UnknownBecause(runs, verdict));
  const auto doubt = [&](const char* because, bool (*holds)(const Lineage& run)) {
    const bool is_first = verdict.unknown_because().empty();
    if (is_first && std::any_of(lineages.begin(), lineages.end(), holds))
      verdict.set_unknown_because(because);
  };
  doubt("killed_in_bad_step", &WasKilledInBadStep);
  doubt("died_in_bad_step", &DiedUnfollowed);
  doubt("skip_not_explained",
        [](const Lineage& run) { return ExcusedUnread(run.origins(), run.events()); });
  doubt("skip_not_seen", [](const Lineage& run) { return ExcusedUndecided(run.events()); });
  doubt("update_not_seen", [](const Lineage& run) { return UnappliedUndecided(run.events()); });
  doubt("not_followed", &EndedUnfollowed);
  if (!verdict.unknown_because().empty()) {
    verdict.set_verdict("unknown");
  } else {
    const bool nothing_bad = incidents.empty() && !SkippedUpdates(runs);
    verdict.set_verdict(nothing_bad ? "clean" : "expected");
  }
}

// The run of the most important origin, else the first.
void ChooseRun(Verdict& verdict) {
  if (verdict.runs().empty()) return;
  *verdict.mutable_run() = verdict.runs(0);
  if (verdict.incidents().empty()) return;
  for (const RunInfo& run : verdict.runs()) {
    if (run.id() == verdict.incidents(0).origin().run()) *verdict.mutable_run() = run;
  }
}

}  // namespace

Verdict Correlate(const std::vector<RunFacts>& runs) {
  return std::move(Correlate(runs, Excused()).verdict);
}

Correlation Correlate(const std::vector<RunFacts>& runs, const Excused& excused, uint32_t explained,
                      const std::vector<UnwatchedProcess>& unwatched) {
  Correlation correlation;
  Verdict& verdict = correlation.verdict;
  verdict.set_schema("nanwatch.verdict/1");
  for (const UnwatchedProcess& process : unwatched) *verdict.add_unwatched() = process;
  if (runs.empty()) {
    Conclude(runs, {}, verdict);
    return correlation;
  }
  const std::vector<const RunFacts*> ordered = InRankOrder(runs);
  for (const RunFacts* facts : ordered) *verdict.add_runs() = DescribeRun(*facts);
  *verdict.mutable_coverage() = SumCoverage(runs);
  const std::vector<Lineage> lineages = TraceRuns(ordered, excused);
  AddIncidents(lineages, explained, correlation);
  Conclude(runs, lineages, verdict);
  AddTrainings(lineages, verdict.coverage().lost_events() == 0, verdict);
  AddCheckpoints(lineages, verdict);
  ChooseRun(verdict);
  correlation.explanation.set_schema("nanwatch.explanation/1");
  correlation.explanation.set_verdict(verdict.verdict());
  correlation.explanation.set_incident(explained);
  return correlation;
}

}  // namespace nanwatch
