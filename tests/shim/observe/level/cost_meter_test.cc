// SPDX-License-Identifier: Apache-2.0
// When the checks are switched off to measure them, on made-up jobs whose steps take as long as the
// test says.
#include "shim/observe/level/cost_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace nanwatch {
namespace {

struct Job {
  double step_ms = 50;
  double cost = 0.03;  // of the checks, as a share of a step without them
  double noise = 0.02;
  double slow_every = 0;  // one step in so many takes ten times as long, e.g. for a checkpoint
  bool in_lockstep = false;
  std::function<bool(uint64_t step)> calm = [](uint64_t) { return true; };
  std::function<uint32_t(uint64_t step)> kind = [](uint64_t) { return 1u; };
};

struct Seen {
  std::vector<bool> off;       // by step
  std::vector<bool> last_off;  // likewise
  [[nodiscard]] uint64_t CountOff() const {
    return static_cast<uint64_t>(std::count(off.begin(), off.end(), true));
  }
};

class Training {
 public:
  explicit Training(double share = 0.01) : meter_(share) {}

  void Run(const Job& job, uint64_t steps) {
    std::normal_distribution<double> noise(0, job.noise);
    for (uint64_t i = 0; i < steps; ++i, ++step_) {
      double ms = job.step_ms * (next_.off ? 1 : 1 + job.cost) * std::max(0.5, 1 + noise(random_));
      if (job.slow_every > 0 && step_ % static_cast<uint64_t>(job.slow_every) == 0) ms *= 10;
      seen_.off.push_back(next_.off);
      seen_.last_off.push_back(next_.last_off);
      next_ = meter_.OnStep({.ns = static_cast<uint64_t>(ms * 1e6),
                             .off = next_.off,
                             .calm = job.calm(step_),
                             .in_lockstep = job.in_lockstep,
                             .kind = job.kind(step_)});
    }
  }

  CostMeter& meter() { return meter_; }
  const Seen& seen() const { return seen_; }
  CostMeter::Next next() const { return next_; }

 private:
  CostMeter meter_;
  Seen seen_;
  CostMeter::Next next_;
  uint64_t step_ = 0;
  std::mt19937 random_{5};
};

TEST(CostMeter, MeasuresWhatTheChecksCost) {
  for (const double cost : {0.0, 0.004, 0.03, 0.5, 8.0}) {
    Training training;
    training.Run({.cost = cost}, 20'000);
    const PairedRatios::Figure figure = training.meter().Read();
    ASSERT_EQ(figure.pairs, PairedRatios::kPairsMax);
    EXPECT_LE(figure.low, 100 * cost);
    EXPECT_GE(figure.high, 100 * cost);
    EXPECT_NEAR(figure.median, 100 * cost, 1 + cost);
  }
}

TEST(CostMeter, IsNotFooledBySlowStepsNowAndThen) {
  Training training;
  training.Run({.cost = 0.03, .slow_every = 10}, 60'000);
  EXPECT_NEAR(training.meter().Read().median, 3, 1.5);
}

TEST(CostMeter, ShortRunsAreWatchedWhole) {
  Training few;
  few.Run({.step_ms = 1000}, 399);
  EXPECT_EQ(few.seen().CountOff(), 0u);
  Training brief;
  brief.Run({.step_ms = 0.5}, 9000);
  EXPECT_EQ(brief.seen().CountOff(), 0u) << "less than five seconds";
  Training longer(0.5);
  longer.Run({.step_ms = 100}, CostMeter::kStepsMin);
  EXPECT_EQ(longer.seen().CountOff(), 0u);
}

TEST(CostMeter, NeverLeavesOutMoreThanItsShare) {
  for (const double share : {0.01, 0.003, 0.25}) {
    for (const double step_ms : {0.5, 3.0, 20.0, 400.0}) {
      Training training(share);
      training.Run({.step_ms = step_ms}, 60'000);
      uint64_t off = 0;
      for (size_t i = 0; i < training.seen().off.size(); ++i) {
        off += training.seen().off[i];
        ASSERT_LE(static_cast<double>(off), share * static_cast<double>(i + 1) + 1) << i;
      }
      EXPECT_GT(off, 0u);
    }
  }
}

TEST(CostMeter, NeverMeasuresWithoutAShare) {
  Training training(0);
  training.Run({}, 20'000);
  EXPECT_EQ(training.seen().CountOff(), 0u);
  EXPECT_EQ(training.meter().Read().pairs, 0u);
}

TEST(CostMeter, BlocksOfShortStepsAreLonger) {
  const auto longest = [](double step_ms) {
    Training training;
    training.Run({.step_ms = step_ms}, 40'000);
    uint32_t block = 0;
    uint32_t most = 0;
    for (const bool off : training.seen().off) {
      block = off ? block + 1 : 0;
      most = std::max(most, block);
    }
    return most;
  };
  EXPECT_EQ(longest(1000), CostMeter::kBlockMin);
  EXPECT_EQ(longest(10), 16u);
  EXPECT_EQ(longest(0.5), CostMeter::kBlockMax);
}

TEST(CostMeter, EachBlockEndsWithTheStepThatIsSaidToBeItsLast) {
  Training training;
  training.Run({}, 20'000);
  const Seen& seen = training.seen();
  for (size_t i = 0; i + 1 < seen.off.size(); ++i) {
    EXPECT_EQ(seen.last_off[i], seen.off[i] && !seen.off[i + 1]) << i;
  }
}

TEST(CostMeter, WhichBlockComesFirstIsDrawnAndSoIsItsPlace) {
  Training training;
  training.Run({.step_ms = 100}, 40'000);
  const Seen& seen = training.seen();
  std::vector<size_t> places;
  for (size_t i = 1; i < seen.off.size(); ++i) {
    if (seen.off[i] && !seen.off[i - 1]) places.push_back(i % 400);
  }
  ASSERT_GT(places.size(), 50u);
  std::sort(places.begin(), places.end());
  EXPECT_LT(places.front(), 60u);
  EXPECT_GT(places.back(), 340u);
  EXPECT_GT(std::unique(places.begin(), places.end()) - places.begin(), 40);
}

TEST(CostMeter, TrainingsOfARoundNumberOfStepsDoNotEndWhileTheChecksAreOff) {
  for (const double step_ms : {0.5, 100.0}) {
    Training training;
    training.Run({.step_ms = step_ms}, 60'000);
    const Seen& seen = training.seen();
    for (size_t steps = 50; steps < seen.off.size(); steps += 50) {
      EXPECT_TRUE(!seen.off[steps - 1] || seen.last_off[steps - 1]) << steps;
    }
  }
}

TEST(CostMeter, GoesOnWatchingWhenAnOptimizerIsNotUsedAnyMore) {
  CostMeter meter(0.25);
  CostMeter::Next next;
  uint64_t off = 0;
  for (int i = 0; i < 4000; ++i) {
    // From the first step that is off on, no cycle ends any more.
    next = meter.OnStep(
        {.ns = 100'000'000, .ends_cycle = off == 0, .off = next.off, .calm = true, .kind = 1});
    off += next.off;
  }
  EXPECT_GT(off, 0u);
  EXPECT_LT(off, 100u);
  EXPECT_FALSE(next.off);
}

TEST(CostMeter, WatchesOnWhileSomethingIsWrongAndAWhileAfter) {
  Training training(0.25);
  Job job{.step_ms = 100};
  job.calm = [](uint64_t step) { return step < 1000 || step >= 1200; };
  training.Run(job, 1000);
  const uint64_t before = training.seen().CountOff();
  EXPECT_GT(before, 0u);
  training.Run(job, 200 + CostMeter::kQuietSteps);
  // The step that shows it is the first whose end is known.
  EXPECT_LE(training.seen().CountOff(), before + 1);
  training.Run(job, 200);
  EXPECT_GT(training.seen().CountOff(), before + 1);
}

TEST(CostMeter, SwitchesBackAtOnceWhenSomethingGoesWrongWhileTheChecksAreOff) {
  Training training(0.25);
  Job job{.step_ms = 100};
  while (!training.next().off) training.Run(job, 1);
  job.calm = [](uint64_t) { return false; };
  training.Run(job, 1);
  EXPECT_FALSE(training.next().off);
}

TEST(CostMeter, BeginsAnewWhenAnotherLevelIsMeasured) {
  Training training(0.25);
  Job job{.step_ms = 100};
  training.Run(job, 1000);
  ASSERT_NE(training.meter().Read().pairs, 0u);
  job.kind = [](uint64_t) { return 2u; };
  job.cost = 0.2;
  training.Run(job, 1);
  EXPECT_EQ(training.meter().Read().pairs, 0u);
  training.Run(job, 1000);
  EXPECT_NEAR(training.meter().Read().median, 20, 3);
}

TEST(CostMeter, LetsAPairGoWhenSomebodyElseSwitches) {
  Training training(0.25);
  training.Run({.step_ms = 100}, 1000);
  CostMeter& meter = training.meter();
  const PairedRatios::Figure before = meter.Read();
  ASSERT_EQ(before.pairs, PairedRatios::kPairsMax);
  // Off or on, whatever is asked for: no pair comes about that is what it claims to be.
  for (int i = 0; i < 2000; ++i) {
    (void)meter.OnStep({.ns = 1, .off = false, .calm = true, .kind = 1});
  }
  EXPECT_EQ(meter.Read().median, before.median);
}

// Each waits for the other, so a block is off in both or in none.
TEST(CostMeter, RanksThatStepTogetherSwitchTogether) {
  Training fast;
  Training slow;
  fast.Run({.step_ms = 99, .in_lockstep = true}, 20'000);
  slow.Run({.step_ms = 101, .in_lockstep = true}, 20'000);
  EXPECT_EQ(fast.seen().off, slow.seen().off);
  EXPECT_GT(fast.seen().CountOff(), 100u);
}

// A discriminator and a generator in turn: their steps take 20 and 60 ms.
TEST(CostMeter, StepsOfSeveralOptimizersAreComparedByCycles) {
  CostMeter meter(0.25);
  std::mt19937 random(5);
  std::normal_distribution<double> noise(0, 0.01);
  CostMeter::Next next;
  uint64_t off = 0;
  for (int i = 0; i < 8000; ++i) {
    const bool generator = i % 2 == 1;
    const double ms = (generator ? 60 : 20) * (next.off ? 1 : 1.1) * (1 + noise(random));
    const bool was_off = next.off;
    off += next.off;
    next = meter.OnStep({.ns = static_cast<uint64_t>(ms * 1e6),
                         .ends_cycle = generator,
                         .off = next.off,
                         .calm = true,
                         .kind = 1});
    if (!generator) {
      EXPECT_EQ(next.off, was_off) << "in the middle of a cycle";
    }
  }
  EXPECT_LE(off, 8000 / 4u);
  EXPECT_NEAR(meter.Read().median, 10, 1);
}

}  // namespace
}  // namespace nanwatch
