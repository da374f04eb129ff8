// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/fleet_verdict.h"

#include <algorithm>
#include <set>
#include <utility>

#include "daemon/explain/explain.h"
#include "daemon/ingest/run_batch.h"

namespace nanwatch {
namespace {

constexpr int kRanksNamed = 64;
constexpr int kReachMax = 64;  // of a run; there are fewer

struct Ranks {
  int32_t expected = 0;
  std::set<int32_t> heard;   // of them, ever
  std::set<int32_t> behind;  // of those
};

// A process beside the ranks, as torchrun, has no world or another one.
Ranks RanksOf(const std::vector<FleetRun>& runs) {
  Ranks ranks;
  for (const FleetRun& run : runs)
    ranks.expected = std::max({ranks.expected, run.facts.run().world_size(), 1});
  for (const FleetRun& run : runs) {
    const bool is_alone = ranks.expected == 1;
    const int32_t rank = is_alone ? 0 : run.facts.run().rank();
    if (!is_alone && run.facts.run().world_size() != ranks.expected) continue;
    if (rank < 0 || rank >= ranks.expected) continue;
    ranks.heard.insert(rank);
    if (!run.facts.state().ended() && run.heard_ago_s > kFleetSilentSeconds)
      ranks.behind.insert(rank);
  }
  return ranks;
}

// A world size may be any number: no longer than there are ranks.
void NameSilent(const Ranks& ranks, FleetVerdict& fleet) {
  for (int32_t rank = 0; rank < ranks.expected; ++rank) {
    if (fleet.ranks_silent_size() == kRanksNamed) return;
    if (!ranks.heard.contains(rank)) fleet.add_ranks_silent(rank);
  }
}

}  // namespace

// All of a run at once: to merge one row after the other takes the square of their number.
void AddFindings(const FindingsByRun& findings, bool is_whole, std::vector<FleetRun>& runs) {
  for (FleetRun& run : runs) {
    if (!is_whole) {
      RunState& state = *run.facts.mutable_state();
      state.set_records_dropped(state.records_dropped() + 1);
    }
    const auto found = findings.find(run.run);
    if (found == findings.end()) continue;
    RunFacts all;
    for (const std::string& body : found->second) {
      if (!all.MergeFromString(body)) continue;
      if (all.reach_size() > kReachMax)
        all.mutable_reach()->DeleteSubrange(kReachMax, all.reach_size() - kReachMax);
    }
    all.clear_run();
    all.clear_state();
    RunFacts facts;
    MergeInto(facts, all);
    MergeInto(facts, run.facts);
    run.facts = std::move(facts);
  }
}

FleetVerdict JudgeFleet(const std::vector<FleetRun>& runs) {
  std::vector<RunFacts> facts;
  facts.reserve(runs.size());
  for (const FleetRun& run : runs) facts.push_back(run.facts);
  FleetVerdict fleet;
  *fleet.mutable_verdict() = Diagnose(facts);
  const Ranks ranks = RanksOf(runs);
  fleet.set_ranks_expected(ranks.expected);
  const auto heard = static_cast<int32_t>(ranks.heard.size());
  const auto behind = static_cast<int32_t>(ranks.behind.size());
  fleet.set_ranks_heard(heard - behind);
  fleet.set_ranks_behind_count(behind);
  for (const int32_t rank : ranks.behind) {
    if (fleet.ranks_behind_size() < kRanksNamed) fleet.add_ranks_behind(rank);
  }
  NameSilent(ranks, fleet);
  Verdict& verdict = *fleet.mutable_verdict();
  const bool looks_well = verdict.verdict() == "clean" || verdict.verdict() == "expected";
  // One of those that are not here may have begun it.
  if (heard < ranks.expected || behind > 0) {
    for (Incident& incident : *verdict.mutable_incidents()) {
      Finding& origin = *incident.mutable_origin();
      if (origin.exact()) origin.add_unseen("ranks");
      origin.set_exact(false);
    }
  }
  if (looks_well && (heard < ranks.expected || behind > 0)) {
    verdict.set_verdict("unknown");
    verdict.set_unknown_because(heard < ranks.expected ? "ranks_not_heard" : "ranks_behind");
  }
  return fleet;
}

}  // namespace nanwatch
