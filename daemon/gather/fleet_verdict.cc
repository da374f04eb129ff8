// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/fleet_verdict.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "daemon/explain/explain.h"
#include "daemon/ingest/run_batch.h"

namespace nanwatch {
namespace {

constexpr int kSilentNamed = 64;

// The ranks of the newest attempt: those that are there, and how many there should be.
std::pair<std::set<int32_t>, int32_t> RanksOf(const std::vector<RunFacts>& runs) {
  int32_t attempt = 0;
  for (const RunFacts& facts : runs) attempt = std::max(attempt, facts.run().attempt());
  std::set<int32_t> heard;
  int32_t expected = 0;
  for (const RunFacts& facts : runs) {
    if (facts.run().attempt() != attempt) continue;
    expected = std::max(expected, facts.run().world_size());
    heard.insert(facts.run().rank());
  }
  return {heard, expected};
}

}  // namespace

std::vector<RunFacts> FactsOfRows(std::vector<FleetRow> rows, bool is_whole) {
  std::sort(rows.begin(), rows.end(), [](const FleetRow& a, const FleetRow& b) {
    return std::tie(a.sequence, a.daemon) < std::tie(b.sequence, b.daemon);
  });
  std::map<std::string, RunFacts> findings;
  std::map<std::string, RunFacts> states;
  for (const FleetRow& row : rows) {
    RunFacts facts;
    if (row.kind != FleetKind::kRun && row.kind != FleetKind::kFindings) continue;
    if (!facts.ParseFromString(row.body)) continue;
    if (row.kind == FleetKind::kRun) {
      states[row.run] = std::move(facts);
    } else {
      MergeInto(findings[row.run], facts);
    }
  }
  std::vector<RunFacts> runs;
  for (auto& [id, state] : states) {
    if (!is_whole) state.mutable_state()->set_records_dropped(state.state().records_dropped() + 1);
    RunFacts facts = std::move(findings[id]);
    MergeInto(facts, state);
    runs.push_back(std::move(facts));
  }
  return runs;
}

FleetVerdict JudgeFleet(const std::vector<RunFacts>& runs) {
  FleetVerdict fleet;
  *fleet.mutable_verdict() = Diagnose(runs);
  const auto [heard, expected] = RanksOf(runs);
  fleet.set_ranks_expected(expected);
  for (int32_t rank = 0; rank < expected; ++rank) {
    if (heard.contains(rank)) {
      fleet.set_ranks_heard(fleet.ranks_heard() + 1);
    } else if (fleet.ranks_silent_size() < kSilentNamed) {
      fleet.add_ranks_silent(rank);
    }
  }
  Verdict& verdict = *fleet.mutable_verdict();
  const bool looks_well = verdict.verdict() == "clean" || verdict.verdict() == "expected";
  if (looks_well && fleet.ranks_heard() < expected) {
    verdict.set_verdict("unknown");
    verdict.set_unknown_because("ranks_not_heard");
  }
  return fleet;
}

}  // namespace nanwatch
