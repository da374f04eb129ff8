// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/run_batch.h"

#include <fmt/format.h>
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace nanwatch {
namespace {

template <typename Sites>
void MergeSites(RunFacts& facts, const Sites& sites) {
  std::unordered_map<uint32_t, int> place;
  for (int i = 0; i < facts.sites_size(); ++i) place[facts.sites(i).id()] = i;
  for (const Site& site : sites) {
    const auto known = place.find(site.id());
    if (known == place.end()) {
      place[site.id()] = facts.sites_size();
      *facts.add_sites() = site;
    } else {
      *facts.mutable_sites(known->second) = site;
    }
  }
}

template <typename Records>
void MergeRecords(RunFacts& facts, const Records& records) {
  if (records.empty()) return;
  std::unordered_set<uint64_t> known;
  for (const Record& record : facts.records()) known.insert(record.ticket());
  for (const Record& record : records) {
    if (known.insert(record.ticket()).second) *facts.add_records() = record;
  }
  std::sort(facts.mutable_records()->begin(), facts.mutable_records()->end(),
            [](const Record& a, const Record& b) { return a.ticket() < b.ticket(); });
}

template <typename Reaches>
void MergeReach(RunFacts& facts, const Reaches& reaches) {
  for (const FirstReachFact& reach : reaches) {
    const bool known =
        std::any_of(facts.reach().begin(), facts.reach().end(),
                    [&](const FirstReachFact& r) { return r.reach() == reach.reach(); });
    if (!known) *facts.add_reach() = reach;
  }
}

}  // namespace

std::string RunId(uint64_t nonce) { return fmt::format("{:016x}", nonce); }

void MergeInto(RunFacts& facts, const RunBatch& batch) {
  *facts.mutable_run() = batch.run;
  *facts.mutable_state() = batch.state;
  MergeSites(facts, batch.sites);
  MergeRecords(facts, batch.records);
  MergeReach(facts, batch.reach);
  facts.set_steps(facts.steps() + batch.steps.size());
  for (const StepSummary& step : batch.steps) *facts.add_steps_read() = step;
  for (const StatsSnapshot& snapshot : batch.stats) *facts.add_stats_read() = snapshot;
  if (batch.training) *facts.mutable_training() = *batch.training;
}

void MergeInto(RunFacts& facts, const RunFacts& newer) {
  const uint64_t thinned =
      std::max(facts.state().records_thinned(), newer.state().records_thinned());
  *facts.mutable_run() = newer.run();
  *facts.mutable_state() = newer.state();
  facts.mutable_state()->set_records_thinned(thinned);
  MergeSites(facts, newer.sites());
  MergeRecords(facts, newer.records());
  MergeReach(facts, newer.reach());
  facts.set_steps(std::max(facts.steps(), newer.steps()));
  facts.mutable_steps_read()->MergeFrom(newer.steps_read());
  facts.mutable_stats_read()->MergeFrom(newer.stats_read());
  if (newer.has_training()) *facts.mutable_training() = newer.training();
}

}  // namespace nanwatch
