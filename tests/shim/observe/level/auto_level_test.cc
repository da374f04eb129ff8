// SPDX-License-Identifier: Apache-2.0
// Level auto, on made-up jobs whose steps take as long as the test says.
#include "shim/observe/level/auto_level.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace nanwatch {
namespace {

using wire::Level;
using Why = wire::LevelRecord::Why;

struct Job {
  double full_cost;  // of a step watched in full, as a share of a bare one
  double canary_cost;
  double noise = 0.02;
  double aftermath = 0;  // of a watched step, in an unwatched one that follows
};

struct Seen {
  uint64_t steps = 0, full = 0, canary = 0, bare = 0;
  double overhead = 0;  // of all steps, as seen from outside
  uint64_t told = 0;
};

// Runs `steps` steps after as many as it takes to settle.
Seen Train(AutoLevel& level, const Job& job, uint64_t steps, uint64_t settling = 400) {
  std::mt19937 random(3);
  std::normal_distribution<double> noise(0, job.noise);
  AutoLevel::Next next;
  Level before = Level::kIdle;
  Seen seen;
  double spent = 0;
  for (uint64_t i = 0; i < settling + steps; ++i) {
    const double cost = next.watched == Level::kFull     ? job.full_cost
                        : next.watched == Level::kCanary ? job.canary_cost
                        : before != Level::kIdle         ? job.aftermath
                                                         : 0;
    before = next.watched;
    AutoLevel::Step step;
    step.ns = static_cast<uint64_t>(1e7 * (1 + cost) * std::max(0.5, 1 + noise(random)));
    step.watched = next.watched;
    step.seen.loss = 1 + noise(random);
    step.seen.gradient_norm = 2 + noise(random);
    step.seen.loss_known = step.seen.norm_known = true;
    if (i >= settling) {
      ++seen.steps;
      seen.full += next.watched == Level::kFull;
      seen.canary += next.watched == Level::kCanary;
      seen.bare += next.watched == Level::kIdle;
      spent += cost;
    }
    next = level.OnStep(step);
    seen.told += next.tell;
  }
  seen.overhead = spent / static_cast<double>(seen.steps);
  return seen;
}

TEST(AutoLevel, WatchesEveryStepInFullWhereThatIsWithinTheBudget) {
  AutoLevel level(5);
  const Seen seen = Train(level, {.full_cost = 0.02, .canary_cost = 0.002}, 2000);
  EXPECT_GT(seen.full, 1900u);
}

TEST(AutoLevel, WatchesAsManyStepsInFullAsTheBudgetHasRoomFor) {
  AutoLevel level(2);
  const Seen seen = Train(level, {.full_cost = 0.20, .canary_cost = 0.002}, 6400, 500);
  EXPECT_LT(seen.overhead, 0.02);
  EXPECT_GT(seen.full, 6400 / 25u);
  EXPECT_GT(seen.canary + seen.full, 6200u);
}

TEST(AutoLevel, WatchesSomeStepsOnlyWhereEvenTheCanaryIsTooDear) {
  AutoLevel level(1);
  const Seen seen = Train(level, {.full_cost = 0.60, .canary_cost = 0.05}, 6400, 500);
  EXPECT_LT(seen.overhead, 0.0115);
  EXPECT_GT(seen.canary, 6400 / 10u);
  EXPECT_GT(seen.full, 0u);
}

TEST(AutoLevel, CountsWhatAWatchedStepCostsTheNextOne) {
  AutoLevel level(1);
  const Job job{.full_cost = 0.60, .canary_cost = 0.02, .aftermath = 0.02};
  const Seen seen = Train(level, job, 12'000, 2000);
  EXPECT_LT(seen.overhead, 0.0105);
  EXPECT_GT(seen.canary, 12'000 / 12u);
}

TEST(AutoLevel, GoesToFullAtOnceWhenSomethingIsFarOffAndBackWhenNothingComesOfIt) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), 1e4}) {
    AutoLevel level(0.1);
    (void)Train(level, {.full_cost = 0.5, .canary_cost = 0.0005}, 100);
    AutoLevel::Step step;
    step.ns = 10'000'000;
    step.watched = Level::kCanary;
    step.seen.gradient_norm = bad;
    step.seen.norm_known = true;
    AutoLevel::Next next = level.OnStep(step);
    EXPECT_EQ(next.watched, Level::kFull) << bad;
    EXPECT_TRUE(next.tell);
    EXPECT_EQ(next.why, Why::kSuspicion);
    step.seen.gradient_norm = 2;
    int full = 0;
    bool quiet = false;
    for (int i = 0; i < 40; ++i) {
      step.watched = next.watched;
      next = level.OnStep(step);
      full += next.watched == Level::kFull;
      quiet = quiet || (next.tell && next.why == Why::kQuiet);
    }
    EXPECT_GE(full, 15) << bad;
    EXPECT_LE(full, 20) << bad;
    EXPECT_TRUE(quiet) << bad;
  }
}

TEST(AutoLevel, GoesToFullWhenActivationsComeFarNearerToTheirLimit) {
  AutoLevel level(1);
  (void)Train(level, {.full_cost = 0.1, .canary_cost = 0.001}, 400);
  AutoLevel::Step step;
  step.ns = 10'000'000;
  step.watched = Level::kFull;
  step.seen.near_limit = 0.05;  // nothing yet
  EXPECT_NE(level.OnStep(step).why, Why::kSuspicion);
  step.seen.near_limit = 0.2;
  EXPECT_EQ(level.OnStep(step).why, Why::kSuspicion);
  for (int i = 0; i < 40; ++i) (void)level.OnStep(step);
  EXPECT_NE(level.OnStep(step).why, Why::kSuspicion) << "as near as it was";
}

// How many plans were told, and how many of them with what they are expected to cost.
struct Told {
  int plans = 0;
  int with_cost = 0;
};
Told PlansTold(double noise) {
  AutoLevel level(1);
  std::mt19937 random(5);
  std::normal_distribution<double> jitter(0, noise);
  AutoLevel::Next next;
  Told told;
  for (int i = 0; i < 4000; ++i) {
    const double cost = next.watched == Level::kFull     ? 0.002
                        : next.watched == Level::kCanary ? 0.001
                                                         : 0;
    next = level.OnStep(
        {.ns = static_cast<uint64_t>(1e7 * (1 + cost) * std::max(0.3, 1 + jitter(random))),
         .watched = next.watched,
         .kind = 0,
         .seen = {}});
    if (next.tell && next.why == Why::kBudget) {
      ++told.plans;
      told.with_cost += next.overhead_percent >= 0;
    }
  }
  return told;
}

TEST(AutoLevel, SaysThatAPlanKeepsItsBudgetOnlyWhereTheIntervalSaysSo) {
  const Told quiet = PlansTold(0.0005);
  EXPECT_GT(quiet.plans, 0);
  EXPECT_EQ(quiet.with_cost, quiet.plans);
  const Told noisy = PlansTold(0.4);
  EXPECT_GT(noisy.plans, 0);
  EXPECT_EQ(noisy.with_cost, 0);
}

TEST(AutoLevel, IsNotHeldAtFullByALossThatStaysWhereItJumpedTo) {
  AutoLevel level(0.1);
  (void)Train(level, {.full_cost = 0.5, .canary_cost = 0.0005}, 100);
  uint64_t full = 0;
  AutoLevel::Next next;
  for (int i = 0; i < 500; ++i) {
    AutoLevel::Step step;
    step.ns = 10'000'000;
    step.watched = next.watched;
    step.seen.loss = 1e6;
    step.seen.loss_known = true;
    next = level.OnStep(step);
    full += next.watched == Level::kFull;
  }
  EXPECT_GE(full, 16u);
  EXPECT_LT(full, 30u);
}

TEST(AutoLevel, LetsALargeBatchPass) {
  AutoLevel level(0.1);
  (void)Train(level, {.full_cost = 0.5, .canary_cost = 0.0005}, 100);
  AutoLevel::Step step;
  step.seen.gradient_norm = 20;  // ten times the median
  step.seen.norm_known = true;
  const AutoLevel::Next next = level.OnStep(step);
  EXPECT_NE(next.why, Why::kSuspicion);
}

TEST(AutoLevel, IsNotFooledByStepsOfTwoKindsInTurn) {
  AutoLevel level(2);
  AutoLevel::Next next;
  double spent = 0;
  double all = 0;
  for (int i = 0; i < 9000; ++i) {
    const double cost = next.watched == Level::kFull     ? 0.20
                        : next.watched == Level::kCanary ? 0.002
                                                         : 0;
    const double bare = i % 2 == 0 ? 3e7 : 6e7;
    if (i >= 1000) {
      spent += cost * bare;
      all += bare;
    }
    AutoLevel::Step step;
    step.ns = static_cast<uint64_t>(bare * (1 + cost));
    step.watched = next.watched;
    step.kind = static_cast<uint32_t>(i % 2);
    next = level.OnStep(step);
  }
  EXPECT_LT(spent / all, 0.035);
  EXPECT_GT(spent / all, 0.002);
}

TEST(AutoLevel, TellsWhatItCostAsSeenFromOutside) {
  for (const double budget : {0.5, 2.0, 20.0}) {
    AutoLevel level(budget);
    EXPECT_EQ(level.Read().pairs, 0u);
    const Seen seen =
        Train(level, {.full_cost = 0.20, .canary_cost = 0.01, .aftermath = 0.004}, 4000, 2000);
    const PairedRatios::Figure told = level.Read();
    ASSERT_GE(told.pairs, PairedRatios::kPairsMin);
    EXPECT_LE(told.low, told.median);
    EXPECT_LE(told.median, told.high);
    EXPECT_NEAR(told.median, 100 * seen.overhead, 1) << budget;
  }
}

TEST(AutoLevel, TellsItsPlanOnceAndNotWithEveryStep) {
  AutoLevel level(2);
  const Seen seen = Train(level, {.full_cost = 0.20, .canary_cost = 0.002}, 6400);
  EXPECT_GE(seen.told, 1u);
  EXPECT_LT(seen.told, 40u);
}

}  // namespace
}  // namespace nanwatch
