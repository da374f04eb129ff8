// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/step_counts.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

constexpr uint64_t kClass = 7;

class Optimizers {
 public:
  // The optimizer with this name takes so many steps; the first of its number.
  uint32_t Step(uintptr_t name, int times = 1) {
    uint32_t number = 0;
    for (int i = 0; i < times; ++i) {
      number = Begin(name);
      counts_.Complete(number, &clocks_);
    }
    return number;
  }
  uint32_t Begin(uintptr_t name) {
    bool is_new = false;
    return counts_.NumberOf(reinterpret_cast<const void*>(name), kClass, &clocks_, &is_new);
  }
  [[nodiscard]] uint32_t CountAt(uint32_t place) const {
    return place == 0 ? 0 : clocks_.optimizer_steps[place - 1];
  }
  [[nodiscard]] const StepCounts& counts() const { return counts_; }
  [[nodiscard]] const wire::Clocks& clocks() const { return clocks_; }

 private:
  StepCounts counts_;
  wire::Clocks clocks_{};
};

TEST(StepCounts, FirstFourHavePlacesInTheOrderInWhichTheyWereSeen) {
  Optimizers optimizers;
  for (uintptr_t name = 1; name <= 4; ++name) {
    EXPECT_EQ(optimizers.counts().IndexOf(optimizers.Step(name, static_cast<int>(name))), name);
    EXPECT_EQ(optimizers.CountAt(static_cast<uint32_t>(name)), name);
  }
  EXPECT_EQ(optimizers.clocks().optimizer_ranges, 10u);
  EXPECT_EQ(optimizers.clocks().optimizer_count, 4u);
}

TEST(StepCounts, FifthTakesThePlaceOfTheOneThatWasSilentLongest) {
  Optimizers optimizers;
  for (uintptr_t name = 1; name <= 4; ++name) optimizers.Step(name, 10);
  const uint32_t fifth = optimizers.Step(5, 7);
  EXPECT_EQ(optimizers.counts().IndexOf(fifth), 1u);
  EXPECT_EQ(optimizers.CountAt(1), 7u);
  EXPECT_EQ(optimizers.CountAt(4), 10u);
  EXPECT_EQ(optimizers.clocks().optimizer_ranges, 47u);
}

TEST(StepCounts, StepThatIsNotCompletedTakesNoPlace) {
  Optimizers optimizers;
  for (uintptr_t name = 1; name <= 4; ++name) optimizers.Step(name, 10);
  optimizers.Begin(5);
  EXPECT_EQ(optimizers.CountAt(1), 10u);
}

TEST(StepCounts, FiveAtWorkTogetherLeaveEachOtherTheirPlaces) {
  Optimizers optimizers;
  for (int round = 0; round < 50; ++round) {
    for (uintptr_t name = 1; name <= 5; ++name) optimizers.Step(name);
  }
  for (uint32_t place = 1; place <= 4; ++place) EXPECT_EQ(optimizers.CountAt(place), 50u);
  EXPECT_EQ(optimizers.counts().IndexOf(optimizers.Begin(5)), 0u);
}

TEST(StepCounts, RareOneKeepsItsPlace) {
  Optimizers optimizers;
  for (int round = 0; round < 30; ++round) {
    optimizers.Step(1);
    optimizers.Step(2, 60);
  }
  for (uintptr_t name = 3; name <= 5; ++name) optimizers.Step(name, 10);
  EXPECT_EQ(optimizers.CountAt(1), 30u);
}

TEST(StepCounts, OneThatComesBackGoesOnWithItsCount) {
  Optimizers optimizers;
  for (uintptr_t name = 1; name <= 5; ++name) optimizers.Step(name, 10);
  const uint32_t first = optimizers.Step(1, 3);
  EXPECT_NE(optimizers.counts().IndexOf(first), 0u);
  EXPECT_EQ(optimizers.CountAt(optimizers.counts().IndexOf(first)), 13u);
}

TEST(StepCounts, HundredOneAfterAnotherAreCountedEachFromItsBeginning) {
  Optimizers optimizers;
  for (uintptr_t name = 1; name <= 100; ++name) {
    const uint32_t number = optimizers.Step(name, 10);
    ASSERT_LT(number, StepCounts::kOptimizersMax);
    EXPECT_EQ(optimizers.CountAt(optimizers.counts().IndexOf(number)), 10u) << name;
    EXPECT_EQ(optimizers.counts().StepsOf(number), 10u) << name;
  }
  EXPECT_EQ(optimizers.clocks().optimizer_ranges, 1'000u);
  EXPECT_EQ(optimizers.clocks().optimizer_count, 100u);
}

}  // namespace
}  // namespace nanwatch
