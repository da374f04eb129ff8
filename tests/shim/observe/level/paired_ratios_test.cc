// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/level/paired_ratios.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace nanwatch {
namespace {

TEST(PairedRatios, SayNothingBeforeThereAreTwelve) {
  PairedRatios ratios;
  for (uint32_t i = 0; i + 1 < PairedRatios::kPairsMin; ++i) ratios.Add(1.5);
  EXPECT_EQ(ratios.Read().pairs, 0u);
  ratios.Add(1.5);
  EXPECT_EQ(ratios.Read().pairs, 12u);
  EXPECT_DOUBLE_EQ(ratios.Read().median, 50);
}

TEST(PairedRatios, TwelveGiveTheThirdAndTheTenth) {
  PairedRatios ratios;
  for (const int place : {7, 1, 12, 4, 10, 2, 9, 3, 11, 6, 5, 8}) ratios.Add(1 + place / 100.0);
  const PairedRatios::Figure figure = ratios.Read();
  EXPECT_NEAR(figure.low, 3, 1e-9);
  EXPECT_NEAR(figure.median, 6.5, 1e-9);
  EXPECT_NEAR(figure.high, 10, 1e-9);
}

// Tables of the sign test: two-sided, at 5 %.
TEST(PairedRatios, BoundsAreThoseOfTheSignTest) {
  EXPECT_EQ(PairedRatios::PlaceOfLow(12), 3u);
  EXPECT_EQ(PairedRatios::PlaceOfLow(13), 3u);
  EXPECT_EQ(PairedRatios::PlaceOfLow(15), 4u);
  EXPECT_EQ(PairedRatios::PlaceOfLow(20), 6u);
  EXPECT_EQ(PairedRatios::PlaceOfLow(24), 7u);
}

TEST(PairedRatios, OnlyTheNewestCount) {
  PairedRatios ratios;
  for (int i = 0; i < 100; ++i) ratios.Add(9);
  for (uint32_t i = 0; i < PairedRatios::kPairsMax; ++i) ratios.Add(1.02);
  EXPECT_EQ(ratios.Read().pairs, PairedRatios::kPairsMax);
  EXPECT_NEAR(ratios.Read().high, 2, 1e-9);
}

TEST(PairedRatios, WhatIsNoRatioIsLeftOut) {
  PairedRatios ratios;
  for (const double wrong : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (int i = 0; i < 20; ++i) ratios.Add(wrong);
  }
  EXPECT_EQ(ratios.Read().pairs, 0u);
}

TEST(PairedRatios, BeginAnewWhenReset) {
  PairedRatios ratios;
  for (int i = 0; i < 20; ++i) ratios.Add(3);
  ratios.Reset();
  EXPECT_EQ(ratios.Read().pairs, 0u);
  for (int i = 0; i < 12; ++i) ratios.Add(1);
  EXPECT_EQ(ratios.Read().high, 0);
}

TEST(PairedRatios, IntervalHoldsTheTrueMedianAsOftenAsItSays) {
  std::mt19937 random(7);
  std::lognormal_distribution<double> ratio(std::log(1.03), 0.05);
  int held = 0;
  constexpr int kTries = 2000;
  for (int i = 0; i < kTries; ++i) {
    PairedRatios ratios;
    for (uint32_t k = 0; k < PairedRatios::kPairsMin; ++k) ratios.Add(ratio(random));
    const PairedRatios::Figure figure = ratios.Read();
    held += figure.low <= 3 && 3 <= figure.high;
  }
  EXPECT_GT(held, kTries * 0.945);
  EXPECT_LT(held, kTries * 0.98);
}

}  // namespace
}  // namespace nanwatch
