// SPDX-License-Identifier: Apache-2.0
// The meter at its edges: shares that are too large, steps of unknown time, bounds of few pairs.
#include <gtest/gtest.h>

#include <cstdint>

#include "shim/observe/level/cost_meter.h"
#include "shim/observe/level/paired_ratios.h"

namespace nanwatch {
namespace {

// Steps that are off out of `steps`; those take `off_ns`.
uint64_t CountOffIn(CostMeter& meter, int steps, uint64_t on_ns, uint64_t off_ns) {
  CostMeter::Next next;
  uint64_t off = 0;
  for (int i = 0; i < steps; ++i) {
    off += next.off;
    next =
        meter.OnStep({.ns = next.off ? off_ns : on_ns, .off = next.off, .calm = true, .kind = 1});
  }
  return off;
}

TEST(CostMeterEdges, NeverLeavesOutMoreThanHalfWhateverShareIsAskedFor) {
  for (const double share : {0.5, 0.9, 100.0}) {
    CostMeter meter(share);
    const uint64_t off = CountOffIn(meter, 10'000, 100'000'000, 90'000'000);
    EXPECT_LE(off, 5'000u) << share;
    EXPECT_GT(off, 2'000u) << share;
  }
}

TEST(CostMeterEdges, APairWithStepsOfUnknownTimeIsLeftOut) {
  CostMeter known(0.25);
  (void)CountOffIn(known, 2'000, 100'000'000, 90'000'000);
  ASSERT_NE(known.Read().pairs, 0u);
  CostMeter unknown(0.25);
  const uint64_t off = CountOffIn(unknown, 2'000, 100'000'000, 0);
  EXPECT_GT(off, 100u) << "blocks were off, only their times were not known";
  EXPECT_EQ(unknown.Read().pairs, 0u);
}

TEST(CostMeterEdges, StepsThatAreNeverCalmAreAllWatched) {
  CostMeter meter(0.25);
  for (int i = 0; i < 3'000; ++i) {
    ASSERT_FALSE(meter.OnStep({.ns = 100'000'000, .calm = false, .kind = 1}).off);
  }
}

TEST(CostMeterEdges, AJobWhoseTimesAreUnknownIsWatchedWhole) {
  CostMeter meter(0.25);
  EXPECT_EQ(CountOffIn(meter, 5'000, 0, 0), 0u);
}

TEST(CostMeterEdges, FewerThanSixPairsHaveNoBounds) {
  EXPECT_EQ(PairedRatios::PlaceOfLow(0), 0u);
  EXPECT_EQ(PairedRatios::PlaceOfLow(5), 0u);
  EXPECT_EQ(PairedRatios::PlaceOfLow(6), 1u);
}

TEST(CostMeterEdges, OfAnEvenNumberOfPairsTheMedianLiesBetweenTheMiddleTwo) {
  PairedRatios ratios;
  for (int i = 0; i < 6; ++i) ratios.Add(1.02);
  for (int i = 0; i < 6; ++i) ratios.Add(1.04);
  EXPECT_NEAR(ratios.Read().median, 3, 1e-9);
  ratios.Add(1.04);
  EXPECT_NEAR(ratios.Read().median, 4, 1e-9);
}

}  // namespace
}  // namespace nanwatch
