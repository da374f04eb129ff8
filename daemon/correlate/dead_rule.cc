// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/dead_rule.h"

#include <algorithm>

#include "daemon/correlate/incident.h"
#include "daemon/watch/dead_steps.h"

namespace nanwatch {
namespace {

using wire::Reach;

int64_t MomentOf(const StepClock& clock, const Clocks* clocks) {
  return clocks == nullptr ? -1 : clock.Read(*clocks).iteration_of_run;
}

uint64_t NewestTicket(const RunFacts& facts, const std::vector<ReachEvent>& events) {
  uint64_t newest = 0;
  for (const Record& record : facts.records()) newest = std::max(newest, record.ticket());
  for (const ReachEvent& event : events) newest = std::max(newest, event.ticket);
  return newest;
}

}  // namespace

DeadSteps FindDeadSteps(const RunFacts& facts) {
  TrainingHistory history;
  *history.mutable_dead() = facts.training().dead();
  if (!facts.training().has_dead()) history.clear_dead();
  for (const StepSummary& step : facts.steps_read()) {
    if (step.index() >= facts.training().next_index()) FoldDeadStep(step, history);
  }
  return history.dead();
}

void AddLossOfDead(const RunFacts& facts, const DeadSteps& dead, const StepClock& clock,
                   std::vector<ReachEvent>& events) {
  if (!dead.has_first()) return;
  const int64_t first = MomentOf(clock, &dead.first());
  const ReachEvent* made_bad = nullptr;
  for (const ReachEvent& event : events) {
    const bool before = event.clocks != nullptr && MomentOf(clock, event.clocks) <= first;
    if (event.reach == Reach::kParameter && IsAnomalous(event) && before) made_bad = &event;
  }
  if (made_bad == nullptr) return;
  ReachEvent lost{.reach = Reach::kLoss,
                  .ticket = NewestTicket(facts, events) + 1,
                  .clocks = &dead.first(),
                  .origin = made_bad->origin,
                  .how = ReachEvent::How::kDead};
  events.push_back(lost);
  lost.clocks = &dead.last();
  ++lost.ticket;
  events.push_back(lost);
}

}  // namespace nanwatch
