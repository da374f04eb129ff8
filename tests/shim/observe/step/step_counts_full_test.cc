// SPDX-License-Identifier: Apache-2.0
// The table of optimizers when it is full, when an address is used again, when counts wrap.
#include <gtest/gtest.h>

#include "proto/wire/optimizer_habit.h"
#include "shim/observe/step/step_counts.h"

namespace nanwatch {
namespace {

class StepCountsTest : public testing::Test {
 protected:
  uint32_t NumberOf(uintptr_t identity, uint64_t class_hash = 7) {
    return counts_.NumberOf(reinterpret_cast<const void*>(identity), class_hash, &clocks_,
                            &is_new_);
  }
  void Complete(uint32_t number, int times = 1) {
    for (int i = 0; i < times; ++i) counts_.Complete(number, &clocks_);
  }

  StepCounts counts_;
  wire::Clocks clocks_{};
  bool is_new_ = false;
};

TEST_F(StepCountsTest, SaysOfEachOptimizerOnceThatItIsNew) {
  const uint32_t first = NumberOf(1);
  EXPECT_TRUE(is_new_);
  EXPECT_EQ(NumberOf(1), first);
  EXPECT_FALSE(is_new_);
  EXPECT_NE(NumberOf(2), first);
  EXPECT_TRUE(is_new_);
}

TEST_F(StepCountsTest, TakesAnotherClassAtAKnownAddressForAnotherOptimizer) {
  const uint32_t adam = NumberOf(1, 7);
  Complete(adam, 5);
  const uint32_t sgd = NumberOf(1, 8);
  EXPECT_TRUE(is_new_);
  EXPECT_NE(sgd, adam);
  EXPECT_EQ(counts_.StepsOf(sgd), 0u);
  EXPECT_EQ(NumberOf(1, 7), adam);
}

TEST_F(StepCountsTest, WhileAllAreAtWorkOneTooManySharesTheLastNumber) {
  constexpr uint32_t kMax = StepCounts::kOptimizersMax;
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 1; i <= kMax; ++i) Complete(NumberOf(i));
  }
  ASSERT_EQ(clocks_.optimizer_count, kMax);
  EXPECT_EQ(NumberOf(1000), kMax - 1);
  EXPECT_FALSE(is_new_);
  EXPECT_EQ(clocks_.optimizer_count, kMax);
  EXPECT_EQ(NumberOf(kMax), kMax - 1) << "the last one keeps its number";
  EXPECT_EQ(counts_.StepsOf(kMax - 1), 3u);
}

TEST_F(StepCountsTest, OneInTheNumberOfARetiredOneBeginsWithNothing) {
  constexpr uint32_t kMax = StepCounts::kOptimizersMax;
  for (uint32_t i = 1; i <= kMax; ++i) {
    const uint32_t number = NumberOf(i);
    (void)counts_.Begin(number);
    counts_.set_class_name(number, 40 + i);
    Complete(number, 2);
  }
  Complete(NumberOf(kMax), 500);  // all others have been silent for long
  const uint32_t number = NumberOf(1000);
  EXPECT_TRUE(is_new_);
  EXPECT_EQ(number, 0u) << "the one that was silent longest";
  EXPECT_EQ(clocks_.optimizer_count, kMax + 1);
  EXPECT_EQ(counts_.StepsOf(number), 0u);
  EXPECT_EQ(counts_.begun(number), 0u);
  EXPECT_EQ(counts_.class_name(number), 0u);
  EXPECT_EQ(counts_.IndexOf(number), 0u) << "a place is earned by a step";
  EXPECT_EQ(NumberOf(kMax), kMax - 1);
  EXPECT_EQ(counts_.class_name(kMax - 1), 40 + kMax);
}

// The first one retires while the holders of the other three places are at work.
TEST_F(StepCountsTest, PlaceOfOneWhoseNumberWasTakenIsFree) {
  constexpr uint32_t kMax = StepCounts::kOptimizersMax;
  for (uint32_t i = 1; i <= kMax; ++i) (void)NumberOf(i);
  const auto others_act = [this](int times) {
    for (int i = 0; i < times; ++i) {
      for (uint32_t identity = 2; identity <= 4; ++identity) Complete(NumberOf(identity));
    }
  };
  for (uint32_t i = 1; i <= 4; ++i) Complete(NumberOf(i));
  others_act(1);
  for (uint32_t i = 0; i < 70; ++i) {
    others_act(1);
    if (i % 10 == 9) Complete(NumberOf(1));
  }
  for (uint32_t i = 5; i <= kMax; ++i) {
    Complete(NumberOf(i));
    others_act(1);
    if (i % 10 == 9) Complete(NumberOf(1));
  }
  others_act(200);
  ASSERT_EQ(counts_.IndexOf(NumberOf(1)), 1u);
  // All of them have retired but 2, 3 and 4; the fifth has been silent longest.
  const uint32_t fifth = NumberOf(1000);
  ASSERT_TRUE(is_new_);
  ASSERT_EQ(fifth, 4u);
  uint32_t number = fifth;
  for (uintptr_t identity = 1001; number != 0; ++identity) {
    ASSERT_LT(identity, 1001u + kMax);
    number = NumberOf(identity);
  }
  Complete(number);
  EXPECT_EQ(counts_.IndexOf(number), 1u);
  EXPECT_EQ(clocks_.optimizer_steps[0], 1u);
}

TEST_F(StepCountsTest, BegunStepsAreCountedApartFromCompletedOnes) {
  const uint32_t number = NumberOf(1);
  EXPECT_EQ(counts_.Begin(number), 1u);
  EXPECT_EQ(counts_.Begin(number), 2u);
  Complete(number);
  EXPECT_EQ(counts_.begun(number), 2u);
  EXPECT_EQ(counts_.StepsOf(number), 1u);
  EXPECT_EQ(clocks_.optimizer_ranges, 1u);
}

// Whatever came before it: it may have been the only step that a side optimizer ever takes.
TEST_F(StepCountsTest, OneThatActedOnceLateIsGivenTheTimeOfASideOptimizer) {
  const uint32_t trainer = NumberOf(1);
  Complete(trainer, 1000);
  for (uint32_t i = 2; i <= 4; ++i) Complete(NumberOf(i));
  const uint32_t once = NumberOf(2);
  const uint32_t late = NumberOf(5);
  // Silent for as long as one with a gap of kFirstGapMax may be.
  const uint32_t allowed = 2 * wire::kFirstGapMax + wire::kQuietStepsAllowed;
  Complete(trainer, static_cast<int>(allowed) - 3);
  Complete(late);
  EXPECT_EQ(counts_.IndexOf(late), 0u);
  EXPECT_EQ(counts_.IndexOf(once), 2u);
  Complete(trainer);
  Complete(late);
  EXPECT_EQ(counts_.IndexOf(late), 2u);
  EXPECT_EQ(counts_.IndexOf(once), 0u);
}

TEST_F(StepCountsTest, WhoIsAtWorkKeepsHisPlaceWhereTheCountOfStepsWraps) {
  clocks_.optimizer_ranges = UINT32_MAX - 24;
  for (int round = 0; round < 10; ++round) {
    for (uint32_t i = 1; i <= 5; ++i) Complete(NumberOf(i));
  }
  EXPECT_LT(clocks_.optimizer_ranges, 100u);
  for (uint32_t i = 1; i <= 4; ++i) EXPECT_EQ(counts_.IndexOf(NumberOf(i)), i);
  EXPECT_EQ(counts_.IndexOf(NumberOf(5)), 0u);
}

}  // namespace
}  // namespace nanwatch
