// SPDX-License-Identifier: Apache-2.0
#include "daemon/explain/steps_before.h"
#include "daemon/ingest/run_batch.h"

#include <algorithm>
#include <map>
#include <optional>

#include "daemon/watch/recent_steps.h"
#include "daemon/watch/training_watch.h"

namespace nanwatch {
namespace {

const RunFacts* RunOf(const Finding& origin, const std::vector<RunFacts>& runs) {
  for (const RunFacts& facts : runs) {
    if (RunId(facts.run()) == origin.run()) return &facts;
  }
  return nullptr;
}

// Updates that had ended when the origin came; nothing where its record is lost.
std::optional<uint64_t> UpdatesBefore(const Finding& origin, const RunFacts& facts) {
  if (origin.ticket() == 0) return std::nullopt;
  for (const Record& record : facts.records()) {
    if (record.ticket() == origin.ticket()) return UpdatesBy(record.clocks());
  }
  return std::nullopt;
}

void AddTo(const TrainingHistory& history, uint64_t updates, Incident& incident) {
  std::optional<uint32_t> optimizer;
  for (const RecentStep& step : history.recent()) {
    if (step.updates() <= updates) optimizer = step.optimizer();
  }
  for (const RecentStep& step : history.recent()) {
    if (step.updates() > updates || step.optimizer() != optimizer) continue;
    if (step.has_loss()) incident.add_losses_before(step.loss());
    if (step.has_gradient_norm()) incident.add_gradient_norms_before(step.gradient_norm());
  }
}

}  // namespace

void AddStepsBefore(const std::vector<RunFacts>& runs, Verdict& verdict) {
  std::map<const RunFacts*, TrainingHistory> histories;
  for (Incident& incident : *verdict.mutable_incidents()) {
    if (incident.severity() == "info") continue;
    const RunFacts* facts = RunOf(incident.origin(), runs);
    if (facts == nullptr) continue;
    const std::optional<uint64_t> updates = UpdatesBefore(incident.origin(), *facts);
    if (!updates) continue;
    const auto [history, is_new] = histories.try_emplace(facts, facts->training());
    if (is_new) WatchAll(facts->steps_read(), facts->stats_read(), history->second);
    AddTo(history->second, *updates, incident);
  }
}

}  // namespace nanwatch
