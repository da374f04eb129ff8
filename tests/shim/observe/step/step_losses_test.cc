// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/step_losses.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

TEST(StepLosses, KnowNoLossBeforeThereIsOne) {
  StepLosses losses;
  double loss = 0;
  EXPECT_FALSE(losses.Last(&loss));
  EXPECT_FALSE(losses.TakeOfStep(&loss));
}

TEST(StepLosses, GiveTheLossOfAStepOnceAndTheLastOneForever) {
  StepLosses losses;
  losses.Record(0.25);
  losses.Record(0.5);
  double loss = 0;
  EXPECT_TRUE(losses.TakeOfStep(&loss));
  EXPECT_EQ(loss, 0.5);
  EXPECT_FALSE(losses.TakeOfStep(&loss));
  EXPECT_EQ(loss, 0.5) << "what is not known of this step is still the last one";
  EXPECT_TRUE(losses.Last(&loss));
}

TEST(StepLosses, AreScaledUntilTheStepHasEnded) {
  StepLosses losses;
  EXPECT_FALSE(losses.IsScaled());
  losses.SetScaled(true);
  EXPECT_TRUE(losses.IsScaled());
  losses.SetScaled(false);
  EXPECT_FALSE(losses.IsScaled());
}

TEST(StepLosses, KeepTheFirstBadOneOfAStep) {
  StepLosses losses;
  losses.RecordBad({5, 1});
  losses.RecordBad({6, 2});
  EXPECT_EQ(losses.Bad().ticket, 5u);
  EXPECT_EQ(losses.TakeBad().ticket, 5u);
  EXPECT_EQ(losses.Bad().ticket, 0u);
}

TEST(StepLosses, KeepTheLastBadResultAndForgetItWithTheLoss) {
  StepLosses losses;
  losses.RecordBadResult({5, 1});
  losses.RecordBadResult({6, 2});
  EXPECT_EQ(losses.BadResult().ticket, 6u);
  (void)losses.TakeBad();
  EXPECT_EQ(losses.BadResult().ticket, 0u);
}

TEST(StepLosses, ForgetABadResultWhereTheNextOneIsFinite) {
  StepLosses losses;
  losses.RecordBadResult({5, 1});
  losses.RecordBadResult({});
  EXPECT_EQ(losses.BadResult().ticket, 0u);
}

}  // namespace
}  // namespace nanwatch
