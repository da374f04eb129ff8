// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/fleet_verdict.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

// The state of a rank that checked `tensors` in `steps` watched ones.
RunFacts StateOf(int32_t rank, int32_t world_size, int32_t attempt = 0) {
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

FleetRun RankOf(int32_t rank, int32_t world_size, int64_t heard_ago_s = 0) {
  return {.run = "run" + std::to_string(rank),
          .heard_ago_s = heard_ago_s,
          .facts = StateOf(rank, world_size)};
}

FleetRun RunningRankOf(int32_t rank, int32_t world_size, int64_t heard_ago_s) {
  FleetRun run = RankOf(rank, world_size, heard_ago_s);
  run.facts.mutable_state()->set_ended(false);
  return run;
}

template <typename Ranks>
std::vector<int32_t> ListOf(const Ranks& ranks) {
  return {ranks.begin(), ranks.end()};
}

TEST(FleetVerdict, FindingsOfARunAreMergedBeforeItsState) {
  std::vector<FleetRun> runs = {RankOf(0, 1)};
  runs[0].facts.add_sites()->set_id(1);
  runs[0].facts.mutable_sites(0)->set_count(9);
  RunFacts first = RecordsOf({4, 5});
  first.add_sites()->set_id(1);
  first.mutable_sites(0)->set_count(1);
  AddFindings(
      {{"run0",
        {first.SerializeAsString(), RecordsOf({6, 5}).SerializeAsString(), "no message\xff"}},
       {"of nobody", {RecordsOf({7}).SerializeAsString()}}},
      true, runs);
  const RunFacts& facts = runs[0].facts;
  ASSERT_EQ(facts.records_size(), 3);
  EXPECT_EQ(facts.records(2).ticket(), 6u);
  ASSERT_EQ(facts.sites_size(), 1);
  EXPECT_EQ(facts.sites(0).count(), 9u) << "the state is newer";
  EXPECT_TRUE(facts.state().ended());
}

TEST(FleetVerdict, ManyRowsOfOneRunTakeTheTimeOfTheirNumber) {
  std::vector<FleetRun> runs = {RankOf(0, 1)};
  std::vector<std::string> bodies;
  for (uint64_t ticket = 0; ticket < 200'000; ++ticket)
    bodies.push_back(RecordsOf({ticket}).SerializeAsString());
  // Merged row by row this took many minutes.
  AddFindings({{"run0", std::move(bodies)}}, true, runs);
  EXPECT_EQ(runs[0].facts.records_size(), 200'000);
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
  EXPECT_EQ(ListOf(some.ranks_silent()), (std::vector<int32_t>{1, 3}));
}

TEST(FleetVerdict, ARankThatFellSilentBeforeItEndedIsNotClean) {
  const FleetVerdict lately = JudgeFleet({RankOf(0, 2), RunningRankOf(1, 2, kFleetSilentSeconds)});
  EXPECT_EQ(lately.verdict().verdict(), "clean");
  EXPECT_EQ(lately.ranks_heard(), 2);
  const FleetVerdict behind =
      JudgeFleet({RankOf(0, 2, 10'000), RunningRankOf(1, 2, kFleetSilentSeconds + 1)});
  EXPECT_EQ(behind.verdict().verdict(), "unknown");
  EXPECT_EQ(behind.verdict().unknown_because(), "ranks_behind");
  EXPECT_EQ(behind.ranks_heard(), 1) << "who has ended may be silent";
  EXPECT_EQ(ListOf(behind.ranks_behind()), (std::vector<int32_t>{1}));
  EXPECT_EQ(behind.ranks_silent_size(), 0);
}

TEST(FleetVerdict, AProcessBesideTheRanksIsNoneOfThem) {
  const FleetVerdict fleet = JudgeFleet({RankOf(0, 0), RankOf(1, 2)});
  EXPECT_EQ(fleet.ranks_heard(), 1);
  EXPECT_EQ(ListOf(fleet.ranks_silent()), (std::vector<int32_t>{0}));
  const FleetVerdict alone = JudgeFleet({RankOf(-1, 0)});
  EXPECT_EQ(alone.ranks_expected(), 1);
  EXPECT_EQ(alone.ranks_heard(), 1);
}

TEST(FleetVerdict, AWorldOfAnySizeIsAnsweredAtOnce) {
  const FleetVerdict fleet = JudgeFleet({RankOf(0, INT32_MAX), RankOf(INT32_MAX - 1, INT32_MAX)});
  EXPECT_EQ(fleet.ranks_expected(), INT32_MAX);
  EXPECT_EQ(fleet.ranks_heard(), 2);
  EXPECT_EQ(fleet.ranks_silent_size(), 64);
}

TEST(FleetVerdict, AJobThatWasNotReadWholeIsNotCalledClean) {
  std::vector<FleetRun> runs = {RankOf(0, 1)};
  AddFindings({}, true, runs);
  EXPECT_EQ(JudgeFleet(runs).verdict().verdict(), "clean");
  AddFindings({}, false, runs);
  EXPECT_EQ(JudgeFleet(runs).verdict().unknown_because(), "records_lost");
}

TEST(FleetVerdict, FindingsThatAreStillOnTheirWayMayBeWorseThanThoseThatAreHere) {
  std::vector<FleetRun> runs = {RankOf(0, 2), RankOf(1, 2)};
  runs[1].facts.set_findings_sent(3);
  const FindingsByRun some = {{"run1", {RecordsOf({}).SerializeAsString(), ""}}};
  std::vector<FleetRun> early = runs, none = runs;
  AddFindings(some, true, early);
  const FleetVerdict fleet = JudgeFleet(early);
  EXPECT_EQ(fleet.verdict().verdict(), "unknown");
  EXPECT_EQ(fleet.verdict().unknown_because(), "findings_missing");
  EXPECT_EQ(fleet.findings_missing(), 1u);
  AddFindings({{"run1", {"", "", "", ""}}}, true, runs);
  EXPECT_EQ(JudgeFleet(runs).verdict().verdict(), "clean") << "more than the state knew of";
  AddFindings({}, true, none);
  EXPECT_EQ(JudgeFleet(none).findings_missing(), 3u);
}

// Rank 0's first findings are on their way: what it received is not known to be received.
TEST(FleetVerdict, AChainThatBreaksOffWhereARowIsMissingIsNotWhatBeganIt) {
  RunBuilder receiver;
  receiver.Rank(0).Step(3);
  receiver.Value(3).Propagate("aten::add_").Optimizer("enc.0.weight").From(2).Nan();
  receiver.Update(4).Parameter("enc.0.weight", 3);
  RunBuilder maker;
  maker.Rank(1).Step(3);
  maker.Value(5).Produce("aten::div").At("ratio").Nan();
  maker.Value(6).Propagate("aten::add_").Optimizer("enc.0.weight").From(5).Nan();
  maker.Update(7).Parameter("enc.0.weight", 6);
  std::vector<FleetRun> runs(2);
  FindingsByRun findings;
  for (const auto& [at, builder] : {std::pair(0, &receiver), std::pair(1, &maker)}) {
    const RunFacts facts = builder->Build();
    FleetRun& run = runs[static_cast<size_t>(at)];
    run.run = "run" + std::to_string(at);
    *run.facts.mutable_run() = facts.run();
    *run.facts.mutable_state() = facts.state();
    run.facts.set_findings_sent(1);
    findings[run.run].push_back(facts.SerializeAsString());
  }
  std::vector<FleetRun> later = runs;
  runs[0].facts.set_findings_sent(2);
  AddFindings(findings, true, runs);
  const FleetVerdict early = JudgeFleet(runs);
  ASSERT_EQ(early.verdict().incidents_size(), 2);
  EXPECT_EQ(early.verdict().incidents(0).origin().op(), "aten::div");
  EXPECT_EQ(early.verdict().run().rank(), 1);
  EXPECT_FALSE(early.verdict().incidents(0).origin().exact());
  // With all that there is of it, it is as good as any.
  AddFindings(findings, true, later);
  EXPECT_EQ(JudgeFleet(later).verdict().incidents(0).origin().op(), "aten::add_");
}

TEST(FleetVerdict, RunsThatWereNotReadAreSaid) {
  const FleetVerdict fleet = JudgeFleet({RankOf(0, 1)}, {.runs_left_out = 7});
  EXPECT_EQ(fleet.verdict().unknown_because(), "runs_left_out");
  EXPECT_EQ(fleet.runs_left_out(), 7u);
}

TEST(FleetVerdict, ALaunchThatOnlyClocksTellApartIsNotCalledClean) {
  const FleetVerdict fleet = JudgeFleet({RankOf(0, 1)}, {.launch_by_clocks = true});
  EXPECT_EQ(fleet.verdict().unknown_because(), "launch_by_clocks");
}

TEST(FleetVerdict, JudgesByABoundedNumberOfRecordsAndCountsTheOthers) {
  std::vector<FleetRun> runs = {RankOf(0, 2), RankOf(1, 2)};
  std::vector<std::string> many;
  for (uint64_t ticket = 0; ticket < 100; ticket += 2)
    many.push_back(RecordsOf({ticket, ticket + 1}).SerializeAsString());
  AddFindings({{"run0", many}, {"run1", {RecordsOf({1, 2, 3}).SerializeAsString()}}}, true, runs,
              43);
  EXPECT_EQ(runs[1].facts.records_size(), 3) << "others have what it does not need";
  const RunFacts& facts = runs[0].facts;
  ASSERT_EQ(facts.records_size(), 40);
  EXPECT_EQ(facts.records(31).ticket(), 31u) << "the first";
  EXPECT_EQ(facts.records(32).ticket(), 92u) << "and the newest";
  EXPECT_EQ(facts.records(39).ticket(), 99u);
  const FleetVerdict fleet = JudgeFleet(runs);
  EXPECT_EQ(fleet.verdict().coverage().records_thinned(), 60u);
  EXPECT_NE(fleet.verdict().verdict(), "clean");
}

}  // namespace
}  // namespace nanwatch
