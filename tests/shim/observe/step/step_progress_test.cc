// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/step_progress.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

class StepProgressTest : public testing::Test {
 protected:
  uint32_t Begin(const void* identity, const char* class_name = "AdamW") {
    const uint32_t number = progress_.NumberOf(identity, class_name, nullptr);
    progress_.Begin(number);
    return number;
  }

  int adam_ = 0;
  int sgd_ = 0;
  StepProgress progress_;
};

TEST_F(StepProgressTest, CountsAStepWhereItsRangeEnds) {
  const uint32_t adam = Begin(&adam_);
  EXPECT_EQ(progress_.completed(), 0u);
  EXPECT_EQ(progress_.range(), 1u);
  progress_.End(adam, /*counts=*/true, 1);
  EXPECT_EQ(progress_.completed(), 1u);
  EXPECT_EQ(progress_.StepsOfNewest(), 1u);
}

TEST_F(StepProgressTest, DoesNotCountOneThatUpdatedNothing) {
  const uint32_t adam = Begin(&adam_);
  progress_.End(adam, /*counts=*/false, 1);
  EXPECT_EQ(progress_.completed(), 0u);
  EXPECT_EQ(progress_.range(), 1u) << "the range was there all the same";
}

TEST_F(StepProgressTest, KnowsAnOptimizerByItsIdentityAndClass) {
  const uint32_t adam = Begin(&adam_);
  EXPECT_EQ(Begin(&adam_), adam);
  EXPECT_NE(Begin(&sgd_), adam);
  EXPECT_NE(Begin(&adam_, "SGD"), adam);
}

TEST_F(StepProgressTest, KnowsWhichOptimizerHasBegunOnce) {
  const uint32_t adam = Begin(&adam_);
  EXPECT_TRUE(progress_.HasBegunOnce(adam));
  Begin(&adam_);
  EXPECT_FALSE(progress_.HasBegunOnce(adam));
}

TEST_F(StepProgressTest, KnowsWhenThreadsTrainWithOptimizersOfTheirOwn) {
  progress_.End(Begin(&adam_), true, 1);
  progress_.End(Begin(&sgd_), true, 1);
  EXPECT_FALSE(progress_.ThreadsTrain()) << "two optimizers of one thread";
  progress_.End(Begin(&sgd_), true, 2);
  EXPECT_FALSE(progress_.ThreadsTrain()) << "one optimizer that goes on in another thread";
  progress_.End(Begin(&adam_), true, 1);
  EXPECT_TRUE(progress_.ThreadsTrain());
  progress_.End(Begin(&adam_), true, 1);
  EXPECT_TRUE(progress_.ThreadsTrain()) << "from then on";
}

TEST_F(StepProgressTest, GivesTheStepsOfTheOptimizerThatBeganLast) {
  const uint32_t adam = Begin(&adam_);
  progress_.End(adam, true, 1);
  Begin(&sgd_);
  EXPECT_EQ(progress_.StepsOfNewest(), 0u);
  Begin(&adam_);
  EXPECT_EQ(progress_.StepsOfNewest(), 1u);
}

TEST_F(StepProgressTest, CountsUpdatesByHandOnlyWithoutAnOptimizer) {
  EXPECT_TRUE(progress_.CompletePlain());
  EXPECT_EQ(progress_.completed(), 1u);
  progress_.End(Begin(&adam_), true, 1);
  EXPECT_FALSE(progress_.CompletePlain());
  EXPECT_EQ(progress_.completed(), 2u);
  EXPECT_EQ(progress_.Now().plain_updates, 1u);
}

TEST_F(StepProgressTest, CountsAStepThatAScalerSkips) {
  progress_.CompleteSkip();
  EXPECT_EQ(progress_.completed(), 1u);
  EXPECT_EQ(progress_.Now().scaler_skips, 1u);
}

TEST_F(StepProgressTest, CountsPassesOfAStepAndOfTheRun) {
  progress_.OnPassReachedLeaf();
  progress_.OnPassReachedLeaf();
  EXPECT_EQ(progress_.Now().micro_passes, 2u);
  progress_.End(Begin(&adam_), true, 1);
  EXPECT_EQ(progress_.Now().micro_passes, 0u);
  EXPECT_EQ(progress_.Now().passes, 2u);
}

TEST_F(StepProgressTest, BeginsPassesAnewAfterASkipAndAnUpdateByHand) {
  progress_.OnPassReachedLeaf();
  progress_.CompleteSkip();
  EXPECT_EQ(progress_.Now().micro_passes, 0u);
  progress_.OnPassReachedLeaf();
  EXPECT_TRUE(progress_.CompletePlain());
  EXPECT_EQ(progress_.Now().micro_passes, 0u);
}

TEST_F(StepProgressTest, GivesAnOptimizersStepsTheirPlaceInTheClocks) {
  const uint32_t adam = Begin(&adam_);
  progress_.End(adam, true, 1);
  const uint32_t place = progress_.PlaceOf(adam);
  ASSERT_EQ(place, 1u);
  EXPECT_EQ(progress_.Now().optimizer_steps[place - 1], 1u);
}

TEST_F(StepProgressTest, CountsStepsByTheLevelTheyWereWatchedAt) {
  progress_.CountWatched(wire::Level::kFull);
  progress_.CountWatched(wire::Level::kFull);
  progress_.CountWatched(wire::Level::kIdle);
  uint64_t steps[wire::kWatchedLevels] = {};
  progress_.StepsWatched(steps);
  EXPECT_EQ(steps[static_cast<int>(wire::Level::kFull)], 2u);
  EXPECT_EQ(steps[static_cast<int>(wire::Level::kIdle)], 1u);
  EXPECT_EQ(steps[static_cast<int>(wire::Level::kCanary)], 0u);
}

}  // namespace
}  // namespace nanwatch
