// SPDX-License-Identifier: Apache-2.0
// Level auto at its edges: the first steps, steps of unknown time, one alert on top of another.
#include <gtest/gtest.h>

#include <cmath>

#include "shim/observe/level/auto_level.h"

namespace nanwatch {
namespace {

using EdgeLevel = wire::Level;

AutoLevel::Step StepOf(EdgeLevel watched, double norm, uint64_t ns = 10'000'000) {
  AutoLevel::Step step;
  step.ns = ns;
  step.watched = watched;
  step.seen.gradient_norm = norm;
  step.seen.norm_known = true;
  return step;
}

TEST(AutoLevelEdges, TheFirstStepsAreWatchedAtCanary) {
  AutoLevel level(1);
  EXPECT_EQ(AutoLevel::Next{}.watched, EdgeLevel::kCanary) << "before the first step has ended";
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(level.OnStep(StepOf(EdgeLevel::kCanary, 1)).watched, EdgeLevel::kCanary) << i;
  }
}

TEST(AutoLevelEdges, ABadFirstStepIsFollowedByFullOnes) {
  AutoLevel level(0.01);
  const AutoLevel::Next next = level.OnStep(StepOf(EdgeLevel::kCanary, std::nan("")));
  EXPECT_EQ(next.watched, EdgeLevel::kFull);
  EXPECT_EQ(next.why, wire::LevelRecord::Why::kSuspicion);
  EXPECT_TRUE(next.tell);
}

TEST(AutoLevelEdges, AnAlertLastsItsStepsAndNoLonger) {
  AutoLevel level(0.01);
  AutoLevel::Next next = level.OnStep(StepOf(EdgeLevel::kCanary, std::nan("")));
  uint32_t full = 0;
  while (next.watched == EdgeLevel::kFull && full < 100) {
    ++full;
    next = level.OnStep(StepOf(EdgeLevel::kFull, 1));
  }
  EXPECT_EQ(full, AutoLevel::kAlertSteps);
  EXPECT_EQ(next.why, wire::LevelRecord::Why::kQuiet);
}

TEST(AutoLevelEdges, AWorseSuspicionDuringAnAlertBeginsItAnewWithoutSayingSoAgain) {
  AutoLevel level(0.01);
  for (int i = 0; i < 20; ++i) (void)level.OnStep(StepOf(EdgeLevel::kCanary, 1));
  ASSERT_EQ(level.OnStep(StepOf(EdgeLevel::kCanary, 1e6)).watched, EdgeLevel::kFull);
  for (int i = 0; i < 10; ++i) (void)level.OnStep(StepOf(EdgeLevel::kFull, 1));
  AutoLevel::Next next = level.OnStep(StepOf(EdgeLevel::kFull, std::nan("")));
  EXPECT_FALSE(next.tell);
  uint32_t full = 0;
  while (next.watched == EdgeLevel::kFull && full < 100) {
    ++full;
    next = level.OnStep(StepOf(EdgeLevel::kFull, 1));
  }
  EXPECT_EQ(full, AutoLevel::kAlertSteps);
}

// Steps of an alert are in full whatever they cost: they are no sample of what a plan costs.
TEST(AutoLevelEdges, WhatAnAlertCostsIsNotHeldAgainstLevelFull) {
  AutoLevel quiet(5);
  AutoLevel alarmed(5);
  uint64_t full = 0;
  for (AutoLevel* level : {&quiet, &alarmed}) {
    AutoLevel::Next next;
    full = 0;
    for (int i = 0; i < 1200; ++i) {
      const bool alert = level == &alarmed && i >= 20 && i <= 20 + 16;
      const bool bad = level == &alarmed && i == 20;
      const uint64_t ns = alert ? 900'000'000 : 10'000'000;
      next = level->OnStep(StepOf(next.watched, bad ? std::nan("") : 1, ns));
      full += i >= 200 && i < 700 && next.watched == EdgeLevel::kFull;
    }
    EXPECT_GT(full, 450u);
  }
}

TEST(AutoLevelEdges, StepsOfUnknownTimeDoNotLookFree) {
  AutoLevel level(5);
  AutoLevel::Next next;
  uint64_t full = 0;
  for (int i = 0; i < 1200; ++i) {
    const bool is_full = next.watched == EdgeLevel::kFull;
    full += i >= 300 && is_full;
    const uint64_t full_ns = i % 3 != 0 ? 0 : 20'000'000;
    next = level.OnStep(StepOf(next.watched, 1, is_full ? full_ns : 10'000'000));
  }
  EXPECT_LT(full, 100u);
}

}  // namespace
}  // namespace nanwatch
