// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/step_clock.h"

#include <gtest/gtest.h>

#include <vector>

#include "daemon/watch/step_cycles.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

StepClock ClockOfRunThatEndedAt(std::initializer_list<uint32_t> steps) {
  RunFacts facts;
  *facts.mutable_state()->mutable_clocks() = OptimizerClocks(steps);
  return StepClock(facts);
}

TEST(StepClock, OneOptimizerCountsItsCompletedRanges) {
  EXPECT_EQ(ClockOfRunThatEndedAt({20}).Read(OptimizerClocks({7})).step, 7);
}

TEST(StepClock, StepBeforeTheFirstRangeIsZeroWhenAnOptimizerComesLater) {
  const StepReading reading = ClockOfRunThatEndedAt({20}).Read(Clocks());
  EXPECT_EQ(reading.step, 0);
  EXPECT_EQ(reading.source, "optimizer");
}

TEST(StepClock, CriticThatIsUpdatedFiveTimesDoesNotCloseTheCycle) {
  EXPECT_EQ(ClockOfRunThatEndedAt({50, 10}).Read(OptimizerClocks({23, 4})).step, 4);
}

// A step is a cycle then, and the updates are counted beside it.
TEST(StepClock, UpdatesAreCountedWhereOptimizersShareTheSteps) {
  EXPECT_EQ(ClockOfRunThatEndedAt({50, 10}).Read(OptimizerClocks({23, 4})).updates, 27);
  EXPECT_EQ(ClockOfRunThatEndedAt({10, 10}).Read(OptimizerClocks({6, 5})).updates, 11);
  EXPECT_EQ(ClockOfRunThatEndedAt({20}).Read(OptimizerClocks({7})).updates, 0);
  EXPECT_EQ(ClockOfRunThatEndedAt({100, 2}).Read(OptimizerClocks({40, 2})).updates, 0);
}

TEST(StepClock, AmongEqualsTheOptimizerSeenLastClosesTheCycle) {
  // Inside the step the first one is ahead by one.
  EXPECT_EQ(ClockOfRunThatEndedAt({10, 10}).Read(OptimizerClocks({6, 5})).step, 5);
}

TEST(StepClock, SideOptimizerThatActedHardlyEverIsPassedOver) {
  EXPECT_EQ(ClockOfRunThatEndedAt({100, 2}).Read(OptimizerClocks({40, 2})).step, 40);
}

TEST(StepClock, OptimizerThatNeverActedIsPassedOver) {
  EXPECT_EQ(ClockOfRunThatEndedAt({9, 0}).Read(OptimizerClocks({4, 0})).step, 4);
}

TEST(StepClock, WithoutAnOptimizerPlainUpdatesAreSteps) {
  RunFacts facts;
  facts.mutable_state()->mutable_clocks()->set_plain_updates(8);
  facts.mutable_state()->mutable_clocks()->set_passes(16);
  Clocks clocks;
  clocks.set_plain_updates(3);
  clocks.set_micro_passes(1);
  const StepReading reading = StepClock(facts).Read(clocks);
  EXPECT_EQ(reading.step, 3);
  EXPECT_EQ(reading.source, "backward");
  EXPECT_EQ(reading.micro_step, 1);
}

TEST(StepClock, RunWithoutTrainingHasNoStep) {
  const StepReading reading = StepClock(RunFacts()).Read(Clocks());
  EXPECT_EQ(reading.step, -1);
  EXPECT_EQ(reading.iteration, -1);
  EXPECT_EQ(reading.micro_step, -1);
  EXPECT_EQ(reading.source, "none");
}

TEST(StepClock, MicroBatchesAreCountedWithinTheStep) {
  Clocks clocks = OptimizerClocks({3});
  clocks.set_micro_passes(2);
  EXPECT_EQ(ClockOfRunThatEndedAt({6}).Read(clocks).micro_step, 2);
}

TEST(StepClock, RecordsTellTheEndWhenTheStateIsOlder) {
  RunFacts facts;
  *facts.mutable_state()->mutable_clocks() = OptimizerClocks({1, 1});
  *facts.add_records()->mutable_clocks() = OptimizerClocks({10, 2});
  EXPECT_EQ(StepClock(facts).Read(OptimizerClocks({8, 1})).step, 1);
}

// The steps of a run, as its segment tells them; each act is of the optimizer with that number.
class ToldSteps {
 public:
  void Acts(std::initializer_list<int> optimizers, int times = 1) {
    for (int i = 0; i < times; ++i) {
      for (const int optimizer : optimizers) Act(optimizer);
    }
  }
  void ScalerSkips() {
    now_.set_scaler_skips(now_.scaler_skips() + 1);
    Tell(0);
  }
  [[nodiscard]] const Clocks& now() const { return now_; }
  [[nodiscard]] const RunFacts& facts() const { return facts_; }

 private:
  void Act(int optimizer) {
    now_.set_optimizer_steps(optimizer, now_.optimizer_steps(optimizer) + 1);
    now_.set_optimizer_ranges(now_.optimizer_ranges() + 1);
    Tell(static_cast<uint32_t>(optimizer));
  }
  void Tell(uint32_t optimizer) {
    StepSummary& step = *facts_.add_steps_read();
    *step.mutable_clocks() = now_;
    step.set_optimizer(optimizer);
    *facts_.mutable_state()->mutable_clocks() = now_;
  }

  Clocks now_ = OptimizerClocks({0, 0, 0, 0});
  RunFacts facts_;
};

TEST(StepClock, TheOneThatTrainsAfterAnotherTellsTheStepFromItsBeginning) {
  ToldSteps run;
  run.Acts({0}, 50);
  const Clocks early = run.now();
  run.Acts({0}, 50);
  const Clocks between = run.now();
  run.Acts({1}, 40);
  const Clocks late = run.now();
  run.Acts({1}, 110);
  const StepClock clock(run.facts());
  EXPECT_EQ(clock.Read(early).step, 50);
  EXPECT_EQ(clock.Read(between).step, 0);
  EXPECT_EQ(clock.Read(late).step, 40);
  EXPECT_EQ(clock.UpdatesSeen(), 250u);
}

TEST(StepClock, TheStateIsNewerThanTheSteps) {
  ToldSteps run;
  run.Acts({0}, 100);
  RunFacts facts = run.facts();
  run.Acts({1}, 30);
  *facts.mutable_state()->mutable_clocks() = run.now();
  EXPECT_EQ(StepClock(facts).Read(run.now()).step, 30);
}

TEST(StepClock, WhatTheDaemonFoldedGoesOnWithTheStepsThatWereRead) {
  ToldSteps run;
  run.Acts({0}, 100);
  RunFacts facts;
  for (const StepSummary& step : run.facts().steps_read())
    FoldStep(step.clocks(), step.optimizer(), *facts.mutable_training()->mutable_cycles());
  const int folded = run.facts().steps_read_size();
  run.Acts({1}, 30);
  for (int i = folded - 5; i < run.facts().steps_read_size(); ++i)
    *facts.add_steps_read() = run.facts().steps_read(i);
  EXPECT_EQ(StepClock(facts).Read(run.now()).step, 30);
}

TEST(StepClock, SkipsBelongToTheTrainingTheyWereMadeIn) {
  ToldSteps run;
  run.ScalerSkips();
  run.ScalerSkips();
  run.Acts({0}, 20);
  const Clocks early = run.now();
  run.Acts({1}, 3);
  run.ScalerSkips();
  run.Acts({1}, 17);
  const StepClock clock(run.facts());
  EXPECT_EQ(clock.Read(early).iteration_of_run, 22);
  EXPECT_EQ(clock.Read(run.now()).step, 20);
  EXPECT_EQ(clock.Read(run.now()).iteration, 21);
  EXPECT_EQ(clock.Read(run.now()).iteration_of_run, 43);
}

TEST(StepClock, IterationsOfTheRunGrowWhereStepsBeginAnew) {
  ToldSteps run;
  std::vector<Clocks> seen;
  for (const int optimizer : {0, 1, 2}) {
    for (int i = 0; i < 20; ++i) {
      seen.push_back(run.now());
      run.Acts({optimizer});
    }
  }
  const StepClock clock(run.facts());
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(clock.Read(seen[i]).iteration_of_run, static_cast<int64_t>(i));
    EXPECT_EQ(clock.Read(seen[i]).step, static_cast<int64_t>(i % 20));
  }
}

TEST(StepClock, ShortTrainingAtTheEndDoesNotChangeTheStepsOfTheOneBefore) {
  ToldSteps run;
  run.Acts({0}, 2);
  const Clocks early = run.now();
  run.Acts({0}, 28);
  run.Acts({1}, 3);
  const Clocks late = run.now();
  run.Acts({1}, 2);
  const StepClock clock(run.facts());
  EXPECT_EQ(clock.Read(early).step, 2);
  EXPECT_EQ(clock.Read(early).updates, 0);
  EXPECT_FALSE(clock.Read(early).ambiguous);
  EXPECT_EQ(clock.Read(late).step, 3);
  EXPECT_EQ(clock.Read(late).iteration_of_run, 33);
}

TEST(StepClock, OptimizerThatJoinsLateGoesOnCounting) {
  ToldSteps run;
  run.Acts({0}, 7);
  const Clocks early = run.now();
  run.Acts({0}, 13);
  run.Acts({0, 1}, 10);
  const Clocks late = run.now();
  run.Acts({0});
  const Clocks within = run.now();
  run.Acts({1});
  run.Acts({0, 1}, 9);
  const StepClock clock(run.facts());
  EXPECT_EQ(clock.Read(early).step, 7);
  EXPECT_EQ(clock.Read(late).step, 30);
  EXPECT_EQ(clock.Read(within).step, 30);
  EXPECT_EQ(clock.Read(run.now()).step, 40);
  EXPECT_EQ(clock.Read(late).iteration_of_run, 30);
}

TEST(StepClock, SlotOfAnotherOptimizerIsNotReadBeforeItsFirstAct) {
  ToldSteps run;
  run.Acts({0}, 30);
  RunFacts facts = run.facts();
  const Clocks between = run.now();
  Clocks now = between;
  for (uint32_t i = 1; i <= 20; ++i) {
    now.set_optimizer_steps(0, i);
    now.set_optimizer_ranges(30 + i);
    StepSummary& step = *facts.add_steps_read();
    *step.mutable_clocks() = now;
    step.set_optimizer(5);
  }
  const StepClock clock(facts);
  EXPECT_EQ(clock.Read(between).step, 0);
  EXPECT_EQ(clock.Read(now).step, 20);
}

}  // namespace
}  // namespace nanwatch
