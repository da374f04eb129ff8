// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/fleet_verdict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace nanwatch {
namespace {

constexpr char kRun[] = "00000000000000ab";

FleetRow RowOf(FleetKind kind, uint64_t sequence, const RunFacts& facts,
               const std::string& run = kRun) {
  return {.daemon = "0f8fad5b-d9cb-469f-a165-70867728950e",
          .sequence = sequence,
          .kind = kind,
          .job = "train",
          .run = run,
          .body = facts.SerializeAsString()};
}

// The state of a rank that checked `tensors` in `steps` watched ones.
RunFacts RankOf(int32_t rank, int32_t world_size, int32_t attempt = 0) {
  RunFacts facts;
  facts.mutable_run()->set_nonce(static_cast<uint64_t>(rank) + 1);
  facts.mutable_run()->set_rank(rank);
  facts.mutable_run()->set_world_size(world_size);
  facts.mutable_run()->set_attempt(attempt);
  facts.mutable_run()->set_level(3);
  facts.mutable_state()->set_level(3);
  facts.mutable_state()->set_ended(true);
  facts.mutable_state()->set_ops_seen(10);
  facts.mutable_state()->set_tensors_checked(10);
  for (const uint64_t steps : {0, 0, 0, 5}) facts.mutable_state()->add_steps_watched(steps);
  return facts;
}

RunFacts RecordsOf(std::initializer_list<uint64_t> tickets) {
  RunFacts facts;
  for (const uint64_t ticket : tickets) {
    Record& record = *facts.add_records();
    record.set_ticket(ticket);
    record.mutable_kill()->set_site(1);
  }
  return facts;
}

TEST(FleetVerdict, RowsMakeTheSameFactsInWhateverOrderTheyCame) {
  RunFacts early = RankOf(0, 1);
  early.mutable_state()->set_ended(false);
  std::vector<FleetRow> rows = {
      RowOf(FleetKind::kRun, 1, early), RowOf(FleetKind::kFindings, 2, RecordsOf({4, 5})),
      RowOf(FleetKind::kFindings, 3, RecordsOf({6})), RowOf(FleetKind::kRun, 4, RankOf(0, 1))};
  const std::vector<RunFacts> expected = FactsOfRows(rows, true);
  ASSERT_EQ(expected.size(), 1u);
  EXPECT_TRUE(expected[0].state().ended());
  ASSERT_EQ(expected[0].records_size(), 3);
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(rows.begin(), rows.end(), random);
    const std::vector<RunFacts> facts = FactsOfRows(rows, true);
    ASSERT_EQ(facts.size(), 1u);
    EXPECT_EQ(facts[0].SerializeAsString(), expected[0].SerializeAsString());
  }
}

TEST(FleetVerdict, FindingsWithoutAStateWaitForIt) {
  EXPECT_TRUE(FactsOfRows({RowOf(FleetKind::kFindings, 2, RecordsOf({4}))}, true).empty());
}

TEST(FleetVerdict, ACleanJobIsNotCalledSoWhileRanksAreSilent) {
  const FleetVerdict all = JudgeFleet({RankOf(0, 2), RankOf(1, 2)});
  EXPECT_EQ(all.verdict().verdict(), "clean") << all.verdict().unknown_because();
  EXPECT_EQ(all.ranks_heard(), 2);
  const FleetVerdict some = JudgeFleet({RankOf(0, 4), RankOf(2, 4)});
  EXPECT_EQ(some.verdict().verdict(), "unknown");
  EXPECT_EQ(some.verdict().unknown_because(), "ranks_not_heard");
  EXPECT_EQ(some.ranks_expected(), 4);
  EXPECT_EQ(some.ranks_heard(), 2);
  EXPECT_EQ(std::vector<int32_t>(some.ranks_silent().begin(), some.ranks_silent().end()),
            (std::vector<int32_t>{1, 3}));
}

TEST(FleetVerdict, RanksAreThoseOfTheNewestAttempt) {
  const FleetVerdict fleet = JudgeFleet({RankOf(0, 2), RankOf(1, 2), RankOf(0, 2, 1)});
  EXPECT_EQ(fleet.ranks_heard(), 1);
  EXPECT_EQ(fleet.ranks_silent(0), 1);
}

TEST(FleetVerdict, AJobThatWasNotReadWholeIsNotCalledClean) {
  const std::vector<FleetRow> rows = {RowOf(FleetKind::kRun, 1, RankOf(0, 1))};
  EXPECT_EQ(JudgeFleet(FactsOfRows(rows, true)).verdict().verdict(), "clean");
  EXPECT_EQ(JudgeFleet(FactsOfRows(rows, false)).verdict().unknown_because(), "records_lost");
}

}  // namespace
}  // namespace nanwatch
