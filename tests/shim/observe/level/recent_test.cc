// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/level/recent.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

TEST(Recent, OfNothingIsZero) {
  const Recent recent;
  EXPECT_EQ(recent.count(), 0u);
  EXPECT_EQ(recent.Median(), 0);
  EXPECT_EQ(recent.Largest(), 0);
}

TEST(Recent, PlacesThatHoldNothingYetDoNotCount) {
  RecentOf<8> recent;
  recent.Add(-3);
  EXPECT_EQ(recent.Largest(), -3);
  EXPECT_EQ(recent.Median(), -3);
  recent.Add(-1);
  recent.Add(-2);
  EXPECT_EQ(recent.Largest(), -1);
  EXPECT_EQ(recent.Median(), -2);
}

TEST(Recent, TheOldestGivesWayToTheNewest) {
  RecentOf<3> recent;
  for (const double value : {100.0, 1.0, 2.0}) recent.Add(value);
  EXPECT_EQ(recent.Largest(), 100);
  EXPECT_EQ(recent.Median(), 2);
  recent.Add(3);
  EXPECT_EQ(recent.Largest(), 3);
  EXPECT_EQ(recent.Median(), 2);
  EXPECT_EQ(recent.count(), 3u);
  recent.Add(0);  // in the place of 1
  EXPECT_EQ(recent.Median(), 2);
  EXPECT_EQ(recent.Largest(), 3);
}

TEST(Recent, AskingForTheMedianLeavesTheOrderAlone) {
  RecentOf<3> recent;
  for (const double value : {9.0, 5.0, 7.0}) recent.Add(value);
  EXPECT_EQ(recent.Median(), 7);
  recent.Add(6);  // 9 was first
  EXPECT_EQ(recent.Largest(), 7);
}

TEST(Recent, OfAnEvenNumberTheUpperOfTheMiddleTwoIsTheMedian) {
  RecentOf<4> recent;
  for (const double value : {4.0, 1.0, 3.0, 2.0}) recent.Add(value);
  EXPECT_EQ(recent.Median(), 3);
}

}  // namespace
}  // namespace nanwatch
