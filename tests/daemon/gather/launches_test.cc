// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/launches.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace nanwatch {
namespace {

constexpr uint64_t kMinuteNs = uint64_t{60} * 1'000'000'000;
constexpr uint64_t kBeginNs = uint64_t{1'764'203'000} * 1'000'000'000;

// A run of this rank, on a host of its own, that began and was heard of last at these minutes.
FleetRun RunOf(int32_t rank, uint64_t began_min, uint64_t last_min, bool ended = true) {
  static int number = 0;
  FleetRun run = {.daemon = "host" + std::to_string(rank),
                  .run = "run" + std::to_string(number++),
                  .recorded_ns = kBeginNs + last_min * kMinuteNs};
  run.facts.mutable_run()->set_rank(rank);
  run.facts.mutable_run()->set_world_size(2);
  run.facts.mutable_run()->set_program("train.py");
  run.facts.mutable_run()->set_started_real_ns(kBeginNs + began_min * kMinuteNs);
  run.facts.mutable_state()->set_ended(ended);
  if (ended) run.facts.mutable_state()->set_ended_real_ns(kBeginNs + last_min * kMinuteNs);
  return run;
}

std::vector<size_t> SizesOf(const std::vector<FleetLaunch>& launches) {
  std::vector<size_t> sizes;
  sizes.reserve(launches.size());
  for (const FleetLaunch& launch : launches) sizes.push_back(launch.runs.size());
  return sizes;
}

TEST(Launches, RanksOfOneLaunchStayTogetherWhateverTheirClocks) {
  // Ten minutes slow and fast, while the launch lasts an hour or a minute.
  EXPECT_EQ(SizesOf(SplitLaunches({RunOf(0, 10, 70), RunOf(1, 0, 60), RunOf(2, 20, 80)})),
            (std::vector<size_t>{3}));
  EXPECT_EQ(SizesOf(SplitLaunches({RunOf(0, 10, 11), RunOf(1, 0, 1), RunOf(2, 20, 21)})),
            (std::vector<size_t>{3}));
}

TEST(Launches, AnotherClusterOrAttemptIsAnotherLaunch) {
  FleetRun here = RunOf(0, 0, 4);
  here.launch = "SLURM_CLUSTER_NAME=a";
  FleetRun there = RunOf(1, 0, 10);
  there.launch = "SLURM_CLUSTER_NAME=b";
  FleetRun again = RunOf(0, 5, 10);
  again.launch = here.launch;
  again.facts.mutable_run()->set_attempt(1);
  const std::vector<FleetLaunch> launches = SplitLaunches({here, there, again});
  EXPECT_EQ(SizesOf(launches), (std::vector<size_t>{1, 1, 1}));
  EXPECT_EQ(launches.back().attempt, 1);
  EXPECT_NE(launches[0].name, launches[1].name);
}

TEST(Launches, TheSameIdOnAnotherDayIsAnotherLaunch) {
  // No host saw both.
  EXPECT_EQ(SizesOf(SplitLaunches({RunOf(0, 0, 30), RunOf(1, 0, 30), RunOf(2, 100, 110)})),
            (std::vector<size_t>{2, 1}));
}

TEST(Launches, TheSameRankOfTheSameProgramAgainIsAnotherLaunch) {
  const std::vector<FleetLaunch> launches =
      SplitLaunches({RunOf(0, 0, 5), RunOf(1, 0, 5), RunOf(0, 6, 12), RunOf(1, 6, 12)});
  EXPECT_EQ(SizesOf(launches), (std::vector<size_t>{2, 2}));
  EXPECT_EQ(launches.back().began_ns, kBeginNs + 6 * kMinuteNs) << "the newest last";
}

TEST(Launches, WorkersAndOtherProgramsOfARankAreOfItsLaunch) {
  FleetRun worker = RunOf(0, 1, 2);
  FleetRun next_worker = RunOf(0, 3, 4);
  worker.facts.mutable_run()->set_forked_from(7);
  next_worker.facts.mutable_run()->set_forked_from(7);
  FleetRun other = RunOf(0, 21, 25);
  other.facts.mutable_run()->set_program("evaluate.py");
  EXPECT_EQ(SizesOf(SplitLaunches({RunOf(0, 0, 20), worker, next_worker, other})),
            (std::vector<size_t>{4}));
  // A process that has not ended, as far as is known, is no former one.
  EXPECT_EQ(SizesOf(SplitLaunches({RunOf(0, 0, 5, false), RunOf(0, 6, 12)})),
            (std::vector<size_t>{2}));
}

TEST(Launches, ALauncherIsOfTheLaunchOfItsRanks) {
  FleetRun launcher = RunOf(0, 0, 20);
  launcher.facts.mutable_run()->set_pid(100);
  launcher.facts.mutable_run()->set_world_size(0);
  FleetRun rank = RunOf(0, 1, 20);
  rank.launch = "TORCHELASTIC_RUN_ID=a";
  rank.facts.mutable_run()->set_parent_pid(100);
  rank.facts.mutable_run()->set_attempt(1);
  EXPECT_EQ(SizesOf(SplitLaunches({launcher, rank})), (std::vector<size_t>{2}));
}

TEST(Launches, HaveTheSameNameHoweverOftenTheyAreAskedFor) {
  const std::vector<FleetLaunch> one = SplitLaunches({RunOf(0, 0, 5)});
  const std::vector<FleetLaunch> later = SplitLaunches({RunOf(0, 0, 5), RunOf(0, 6, 12)});
  ASSERT_EQ(later.size(), 2u);
  EXPECT_EQ(one[0].name, later[0].name);
  EXPECT_EQ(one[0].name.size(), 8u);
}

FleetRun Worded(FleetRun run, const std::string& launch) {
  run.launch = launch;
  return run;
}

TEST(Launches, ARankWhoseEnvironmentWasNotReadIsOfTheLaunchThatThereIs) {
  const std::vector<FleetLaunch> launches = SplitLaunches(
      {Worded(RunOf(0, 0, 20), "TORCHELASTIC_RUN_ID=a"), RunOf(1, 9, 29), RunOf(2, 0, 20)});
  EXPECT_EQ(SizesOf(launches), (std::vector<size_t>{3}));
  EXPECT_FALSE(launches[0].is_by_clocks);
  FleetRun restarted = RunOf(1, 0, 20);
  restarted.facts.mutable_run()->set_attempt(1);
  EXPECT_EQ(SizesOf(SplitLaunches({Worded(RunOf(0, 0, 20), "TORCHELASTIC_RUN_ID=a"), restarted})),
            (std::vector<size_t>{1, 1}));
}

TEST(Launches, ARankWhoseEnvironmentWasNotReadGoesWithItsHostAndElseSaysThatItIsNotSure) {
  const FleetRun a = Worded(RunOf(0, 0, 20), "TORCHELASTIC_RUN_ID=a");
  const FleetRun b = Worded(RunOf(1, 30, 50), "TORCHELASTIC_RUN_ID=b");
  // By its own clock it began with b; by its host's daemon it is a's.
  FleetRun beside_a = RunOf(2, 25, 40);
  beside_a.daemon = a.daemon;
  std::vector<FleetLaunch> launches = SplitLaunches({a, b, beside_a});
  EXPECT_EQ(SizesOf(launches), (std::vector<size_t>{2, 1}));
  EXPECT_FALSE(launches[0].is_by_clocks);
  launches = SplitLaunches({a, b, RunOf(2, 25, 40)});
  EXPECT_EQ(SizesOf(launches), (std::vector<size_t>{1, 2}));
  EXPECT_FALSE(launches[0].is_by_clocks);
  EXPECT_TRUE(launches[1].is_by_clocks);
}

TEST(Launches, TheSecondTimeOfARankGoesWithTheSecondOfAnotherWhateverTheClocks) {
  // The other host's clock is ten minutes fast.
  const std::vector<FleetLaunch> launches =
      SplitLaunches({RunOf(0, 0, 5), RunOf(0, 6, 12), RunOf(1, 10, 15), RunOf(1, 16, 22)});
  ASSERT_EQ(SizesOf(launches), (std::vector<size_t>{2, 2}));
  for (const FleetLaunch& launch : launches) {
    EXPECT_NE(launch.runs[0].facts.run().rank(), launch.runs[1].facts.run().rank());
    EXPECT_FALSE(launch.is_by_clocks);
  }
  EXPECT_EQ(launches[1].began_ns, kBeginNs + 16 * kMinuteNs);
}

TEST(Launches, ARankThatWasThereOnceGoesWithItsHostAndElseSaysThatItIsNotSure) {
  FleetRun beside = RunOf(2, 6, 12);
  beside.daemon = "host0";
  std::vector<FleetLaunch> launches = SplitLaunches({RunOf(0, 0, 5), RunOf(0, 6, 12), beside});
  ASSERT_EQ(SizesOf(launches), (std::vector<size_t>{1, 2}));
  EXPECT_FALSE(launches[0].is_by_clocks || launches[1].is_by_clocks);
  launches = SplitLaunches({RunOf(0, 0, 5), RunOf(0, 6, 12), RunOf(1, 7, 12)});
  ASSERT_EQ(SizesOf(launches), (std::vector<size_t>{1, 2}));
  EXPECT_TRUE(launches[1].is_by_clocks);
}

TEST(Launches, TheSameRankOnTwoHostsIsTwoLaunchesAndNotSureWithoutWords) {
  FleetRun again = RunOf(0, 6, 12);
  again.daemon = "another";
  std::vector<FleetLaunch> launches = SplitLaunches({RunOf(0, 0, 5), again});
  ASSERT_EQ(SizesOf(launches), (std::vector<size_t>{1, 1}));
  EXPECT_TRUE(launches[0].is_by_clocks && launches[1].is_by_clocks);
  // Both are there now.
  FleetRun now = RunOf(0, 6, 12, false);
  now.daemon = "another";
  launches = SplitLaunches({RunOf(0, 0, 5, false), now});
  ASSERT_EQ(SizesOf(launches), (std::vector<size_t>{2}));
  EXPECT_FALSE(launches[0].is_by_clocks);
}

TEST(Launches, AProgramThatIsCalledAgainAndAgainBesideTheRanksSplitsNoLaunch) {
  std::vector<FleetRun> runs = {RunOf(0, 0, 30), RunOf(1, 0, 30)};
  for (uint64_t minute = 5; minute < 25; minute += 5) {
    FleetRun& check = runs.emplace_back(RunOf(0, minute, minute + 1));
    check.facts.mutable_run()->set_world_size(1);
    check.facts.mutable_run()->set_program("check.py");
  }
  EXPECT_EQ(SizesOf(SplitLaunches(runs)), (std::vector<size_t>{6}));
}

}  // namespace
}  // namespace nanwatch
