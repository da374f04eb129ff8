#include "daemon/correlate/step_clock.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace nanwatch
