// SPDX-License-Identifier: Apache-2.0
// The trainings of a notebook, each with its own answer.
#include "daemon/correlate/trainings.h"

#include <gtest/gtest.h>

#include "daemon/correlate/correlate.h"
#include "daemon/correlate/step_clock.h"
#include "proto/wire/cell_record.h"
#include "proto/wire/record.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

// Steps and cells of a kernel as its segment tells them.
class Kernel {
 public:
  // A cell with so many steps of one optimizer, at this level.
  void Cell(uint32_t number, uint32_t optimizer, int steps, bool idle = false) {
    now_ += kSecond;
    const uint64_t began = now_;
    for (int i = 0; i < steps; ++i) {
      ++counts_[optimizer];
      ++ranges_;
      now_ += kSecond;
      StepSummary& step = *facts_.add_steps_read();
      step.set_index(ranges_ - 1);
      step.set_optimizer(optimizer);
      step.set_time_ns(now_);
      step.set_level(static_cast<uint32_t>(idle ? wire::Level::kIdle : wire::Level::kFull));
      *step.mutable_clocks() = Now();
      if (i != 0) continue;
      step.set_flags(wire::kStepBeginsCell);
      Record& record = *facts_.add_records();
      record.set_ticket(++tickets_ + 1000);
      record.set_time_ns(now_);
      *record.mutable_clocks() = Now();
      record.mutable_cell()->set_number(number);
      record.mutable_cell()->set_began_ns(began);
    }
    *facts_.mutable_state()->mutable_clocks() = Now();
  }
  [[nodiscard]] Clocks Now() const {
    Clocks clocks;
    for (const uint32_t count : counts_) clocks.add_optimizer_steps(count);
    clocks.set_optimizer_ranges(ranges_);
    return clocks;
  }
  [[nodiscard]] uint64_t now_ns() const { return now_; }
  [[nodiscard]] const RunFacts& facts() const { return facts_; }
  // The same steps of a process that is no notebook.
  [[nodiscard]] RunFacts Script() const {
    RunFacts facts = facts_;
    facts.clear_records();
    for (StepSummary& step : *facts.mutable_steps_read()) step.set_flags(0);
    return facts;
  }

 private:
  RunFacts facts_;
  uint32_t counts_[4] = {};
  uint32_t ranges_ = 0;
  uint64_t now_ = kSecond;
  uint64_t tickets_ = 0;
};

TEST(Trainings, HaveTheirStepsAndCells) {
  Kernel kernel;
  kernel.Cell(3, 0, 12);
  kernel.Cell(5, 1, 4);
  kernel.Cell(6, 1, 2);
  const std::vector<TrainingSpan> trainings = StepClock(kernel.facts()).Trainings();
  ASSERT_EQ(trainings.size(), 2u);
  EXPECT_EQ(trainings[0].steps, 12);
  EXPECT_EQ(trainings[0].first_cell, 3u);
  EXPECT_EQ(trainings[0].last_cell, 3u);
  EXPECT_EQ(trainings[1].ordinal, 2);
  EXPECT_EQ(trainings[1].steps, 6);
  EXPECT_EQ(trainings[1].first_cell, 5u);
  EXPECT_EQ(trainings[1].last_cell, 6u);
}

TEST(Trainings, StepsBeginAnewWithTheFirstOfTheSecond) {
  Kernel kernel;
  kernel.Cell(3, 0, 12);
  const Clocks first_ended = kernel.Now();
  const uint64_t at_its_end = kernel.now_ns() + 1;
  kernel.Cell(5, 1, 4);
  const StepClock clock(kernel.facts());
  EXPECT_EQ(clock.Read(kernel.Now()).step, 4);
  EXPECT_EQ(clock.Read(kernel.Now()).training, 2);
  // Behind the first one's last step, and before the second one's first.
  EXPECT_EQ(clock.Read(first_ended, at_its_end).training, 1);
  EXPECT_EQ(clock.Read(first_ended, at_its_end).step, 12);
  EXPECT_EQ(clock.Read(first_ended, at_its_end + 3 * kSecond / 2).training, 2);
  EXPECT_EQ(clock.Read(first_ended, at_its_end + 3 * kSecond / 2).step, 0);
}

TEST(Trainings, AProgramWithoutCellsHasNone) {
  RunFacts facts;
  *facts.mutable_state()->mutable_clocks() = OptimizerClocks({20, 5});
  EXPECT_TRUE(StepClock(facts).Trainings().empty());
  EXPECT_EQ(StepClock(facts).Read(OptimizerClocks({20, 2})).training, 0);
}

// One optimizer after another, without cells.
TEST(Trainings, AProgramWithoutCellsSaysInWhichOfThemAStepIs) {
  Kernel kernel;
  kernel.Cell(0, 0, 40);
  const Clocks of_first = kernel.Now();
  EXPECT_EQ(StepClock(kernel.Script()).Read(of_first).training, 0) << "there is but one";
  kernel.Cell(0, 1, 50);
  const StepClock clock(kernel.Script());
  EXPECT_TRUE(clock.Trainings().empty());
  EXPECT_FALSE(clock.IsNotebook());
  EXPECT_EQ(clock.Read(of_first).training, 2) << "the next step is the second training's";
  EXPECT_EQ(clock.Read(kernel.Now()).training, 2);
  EXPECT_EQ(clock.Read(kernel.Now()).step, 50);
  Clocks within_first = OptimizerClocks({17});
  EXPECT_EQ(clock.Read(within_first).training, 1);
}

TEST(Trainings, OneThatNobodyCheckedIsNotCalledClean) {
  Kernel kernel;
  kernel.Cell(3, 0, 12);
  kernel.Cell(5, 1, 4, /*idle=*/true);
  kernel.Cell(6, 2, 4);
  const Verdict verdict = Correlate({kernel.facts()});
  ASSERT_EQ(verdict.trainings_size(), 3);
  EXPECT_EQ(verdict.trainings(0).verdict(), "clean");
  EXPECT_EQ(verdict.trainings(1).verdict(), "unknown");
  EXPECT_EQ(verdict.trainings(2).verdict(), "clean");
  EXPECT_EQ(verdict.trainings(2).cell(), "In[6]");
}

// As no process of ours writes them.
TEST(Trainings, BeginWithTheFirstSpanAlsoWhereItSaysThatItGoesOn) {
  Kernel kernel;
  kernel.Cell(1, 0, 5);
  RunFacts facts = kernel.facts();
  StepSpan& span = *facts.mutable_training()->mutable_cycles()->add_spans();
  span.set_steps_before(3);
  const std::vector<TrainingSpan> trainings = StepClock(facts).Trainings();
  ASSERT_FALSE(trainings.empty());
  ASSERT_FALSE(trainings.empty());
  EXPECT_EQ(trainings.front().ordinal, 0);
}

}  // namespace
}  // namespace nanwatch
