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
  for (const bool known : {true, false}) {
    CostMeter meter(0.25);
    CostMeter::Next next;
    uint64_t off = 0;
    uint32_t place = 0;  // in a block that is off, which has 32 steps
    for (int i = 0; i < 20'000; ++i) {
      off += next.off;
      place = next.off ? place + 1 : 0;
      const bool has_time = known || (place != 5 && place != 6);
      next = meter.OnStep(
          {.ns = has_time ? uint64_t{2'000'000} : 0, .off = next.off, .calm = true, .kind = 1});
    }
    EXPECT_GT(off, 1'000u);
    EXPECT_EQ(meter.Read().pairs != 0, known);
  }
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
