// SPDX-License-Identifier: Apache-2.0
#include "daemon/watch/level_series.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace nanwatch {
namespace {

TrainingSeries Norms(std::initializer_list<double> norms) {
  TrainingSeries series;
  for (const double norm : norms) PushNorm(norm, series);
  return series;
}

TEST(LevelSeries, ALevelIsTheNumberAgain) {
  EXPECT_NEAR(NormOfLevel(*Norms({3.2e6}).recent().rbegin()), 3.2e6, 1);
  EXPECT_EQ(NormOfLevel(*Norms({0}).recent().rbegin()), 0);
  TrainingSeries loss;
  for (const double value : {2.0, 2.2, -1.9, 2.1, 2.0, 1e-7, 5e8, -4.0}) PushLoss(value, loss);
  EXPECT_NEAR(LossOfLevel(loss.recent(5), loss), 1e-7, 1e-12);
  EXPECT_NEAR(LossOfLevel(loss.recent(6), loss), 5e8, 1);
  EXPECT_NEAR(LossOfLevel(loss.recent(7), loss), -4, 1e-9);
}

TEST(LevelSeries, ComparesWithTheMedianOfTheHundredStepsBefore) {
  TrainingSeries series;
  for (int i = 0; i < 500; ++i) PushNorm(i % 2 == 0 ? 1 : 2, series);
  for (const double norm : {1e3, 1e4, 1e5, 1e6}) PushNorm(norm, series);
  const std::optional<Departure> rise = FindRise(series);
  ASSERT_TRUE(rise.has_value());
  EXPECT_EQ(rise->usual.steps, kUsualSteps);
  EXPECT_NEAR(NormOfLevel(rise->usual.median), 1.5, 0.5);
  EXPECT_NEAR(NormOfLevel(rise->level), 1e6, 1);
  EXPECT_GT(rise->spreads(), 20);
}

TEST(LevelSeries, WhatRisesIsSixTimesTheUsualSpreadAboveWhatLasted) {
  TrainingSeries series;
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i)
    PushNorm(std::pow(10.0, std::normal_distribution<double>(0, 0.38)(random)), series);
  std::optional<Departure> rise;
  for (int i = 1; i < 40 && !rise; ++i) {
    PushNorm(2 * std::pow(10.0, 0.25 * i), series);
    rise = FindRise(series);
  }
  ASSERT_TRUE(rise.has_value());
  EXPECT_GE(rise->level - rise->reference, 6 * rise->usual.spread);
}

TEST(LevelSeries, OneHighStepIsNoRise) {
  TrainingSeries series;
  for (int i = 0; i < 100; ++i) PushNorm(1, series);
  PushNorm(1e30, series);
  EXPECT_FALSE(FindRise(series).has_value());
  PushNorm(1, series);
  EXPECT_FALSE(FindRise(series).has_value());
}

// It is remembered beyond the values that are kept one by one.
TEST(LevelSeries, AHeightThatLastedOnceIsNothingNew) {
  TrainingSeries series;
  for (int i = 0; i < 20; ++i) PushNorm(1e8, series);
  for (int i = 0; i < 3'000; ++i) PushNorm(1, series);
  for (int i = 0; i < 9; ++i) {
    PushNorm(std::pow(10, i), series);
    EXPECT_FALSE(FindRise(series).has_value()) << i;
  }
  for (int i = 9; i < 13; ++i) PushNorm(std::pow(10, i), series);
  EXPECT_TRUE(FindRise(series).has_value());
}

TEST(LevelSeries, AFallIsToldOnlyOnceItHasLasted) {
  TrainingSeries series;
  for (int i = 0; i < 100; ++i) PushNorm(1, series);
  for (int i = 0; i < 19; ++i) PushNorm(1e-6, series);
  EXPECT_FALSE(FindFall(series, 3).has_value());
  PushNorm(1e-6, series);
  EXPECT_TRUE(FindFall(series, 3).has_value());
  EXPECT_FALSE(FindFall(series, 7).has_value());
}

TEST(LevelSeries, WhatComesBackFromAHeightHasNotFallen) {
  TrainingSeries series;
  for (int i = 0; i < 100; ++i) PushNorm(1, series);
  for (int i = 0; i < 70; ++i) PushNorm(1e6, series);
  for (int i = 0; i < 60; ++i) {
    PushNorm(1, series);
    EXPECT_FALSE(FindFall(series, 3).has_value()) << i;
  }
}

}  // namespace
}  // namespace nanwatch
