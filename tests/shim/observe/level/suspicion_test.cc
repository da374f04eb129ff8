// SPDX-License-Identifier: Apache-2.0
// Which steps look as if a non-finite value were on its way.
#include "shim/observe/level/suspicion.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace nanwatch {
namespace {

constexpr int kHistoryOfTest = 16;  // steps that have to be known before one can be far off
constexpr int kPauseOfTest = 512;

Suspicion::Step WithLoss(double loss) { return {.loss = loss, .loss_known = true}; }
Suspicion::Step WithNorm(double norm) { return {.gradient_norm = norm, .norm_known = true}; }
Suspicion::Step NearLimit(double share) { return {.near_limit = share}; }

class SuspicionTest : public testing::Test {
 protected:
  bool Raises(const Suspicion::Step& step) { return suspicion_.IsRaisedBy(step); }
  // False: none of them raised it.
  bool AnyRaises(const Suspicion::Step& step, int times) {
    bool any = false;
    for (int i = 0; i < times; ++i) any = Raises(step) || any;
    return any;
  }

  Suspicion suspicion_;
};

TEST_F(SuspicionTest, IsRaisedByABadValueInTheVeryFirstStep) {
  EXPECT_TRUE(Raises(WithNorm(std::nan(""))));
  Suspicion other;
  EXPECT_TRUE(other.IsRaisedBy(WithLoss(-std::numeric_limits<double>::infinity())));
}

TEST_F(SuspicionTest, IsNotRaisedByFiguresThatAreNotKnown) {
  EXPECT_FALSE(AnyRaises({.loss = std::nan(""), .gradient_norm = std::nan("")}, 20));
}

TEST_F(SuspicionTest, NeedsAHistoryToCallAValueFarOff) {
  EXPECT_FALSE(AnyRaises(WithLoss(1), kHistoryOfTest - 1));
  EXPECT_FALSE(Raises(WithLoss(1e9)));
  Suspicion longer;
  for (int i = 0; i < kHistoryOfTest; ++i) ASSERT_FALSE(longer.IsRaisedBy(WithLoss(1)));
  EXPECT_TRUE(longer.IsRaisedBy(WithLoss(1e9)));
}

TEST_F(SuspicionTest, JudgesALossThatFallsBelowZeroByItsMagnitude) {
  EXPECT_FALSE(AnyRaises(WithLoss(-1), 20));
  EXPECT_TRUE(Raises(WithLoss(-1000)));
}

TEST_F(SuspicionTest, LetsPassWhatIsNotFarBeyondTheLargestOfLate) {
  EXPECT_FALSE(AnyRaises(WithNorm(1), 20));
  EXPECT_FALSE(Raises(WithNorm(20))) << "a large batch";
  EXPECT_FALSE(Raises(WithNorm(60))) << "sixty times the median, but three times the largest";
  EXPECT_TRUE(Raises(WithNorm(300)));
}

TEST_F(SuspicionTest, LetsPassWhatIsNotFarBeyondTheMedian) {
  EXPECT_FALSE(AnyRaises(WithNorm(1), 20));
  EXPECT_FALSE(Raises(WithNorm(31)));
}

TEST_F(SuspicionTest, KeepsLossesAndNormsApart) {
  EXPECT_FALSE(AnyRaises(WithLoss(1e6), 20));
  EXPECT_FALSE(AnyRaises(WithNorm(1), 20));
  EXPECT_TRUE(Raises(WithNorm(1e4))) << "small for a loss, far off for a norm";
}

TEST_F(SuspicionTest, PausesAfterABadStepThoughAllThatFollowAreBadToo) {
  ASSERT_TRUE(Raises(WithNorm(std::nan(""))));
  EXPECT_FALSE(AnyRaises(WithNorm(std::nan("")), kPauseOfTest - 1));
  EXPECT_TRUE(Raises(WithNorm(std::nan(""))));
}

TEST_F(SuspicionTest, PauseAfterAFarOffStepDoesNotHideABadOne) {
  EXPECT_FALSE(AnyRaises(WithNorm(1), 20));
  ASSERT_TRUE(Raises(WithNorm(1e6)));
  EXPECT_FALSE(Raises(WithNorm(1e9)));
  EXPECT_TRUE(Raises(WithNorm(std::nan(""))));
}

TEST_F(SuspicionTest, BadValuesDoNotBecomeTheUsual) {
  EXPECT_FALSE(AnyRaises(WithNorm(1), 20));
  ASSERT_TRUE(Raises(WithNorm(std::numeric_limits<double>::infinity())));
  EXPECT_FALSE(AnyRaises(WithNorm(1), 2));
  EXPECT_TRUE(Raises(WithNorm(1e4))) << "the largest of late is still 1";
}

TEST_F(SuspicionTest, IsRaisedByActivationsOnlyCloseToTheirLimit) {
  EXPECT_FALSE(AnyRaises(NearLimit(0.001), 5));
  EXPECT_FALSE(Raises(NearLimit(0.124))) << "a hundred times nearer, but far from the limit";
  EXPECT_TRUE(Raises(NearLimit(0.5)));
}

TEST_F(SuspicionTest, ActivationsThatComeNearerSlowlyRaiseNothing) {
  for (double share = 0.06; share < 1; share *= 1.5)
    EXPECT_FALSE(Raises(NearLimit(share))) << share;
}

TEST_F(SuspicionTest, ActivationsAsNearAsTheyWereRaiseNothingAfterThePause) {
  ASSERT_TRUE(Raises(NearLimit(0.2)));
  EXPECT_FALSE(AnyRaises(NearLimit(0.2), 2 * kPauseOfTest));
  EXPECT_TRUE(Raises(NearLimit(0.41)));
}

}  // namespace
}  // namespace nanwatch
