// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/figures/awaited_snapshots.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>

namespace nanwatch {
namespace {

using wire::StatsParameter;

// Of so many parameters, with 4 elements each.
AwaitedSnapshots::Snapshot SnapshotOf(size_t parameters, uint64_t time_ns = 0) {
  AwaitedSnapshots::Snapshot snapshot;
  snapshot.parameters.resize(parameters);
  for (StatsParameter& parameter : snapshot.parameters) parameter.numel = 4;
  snapshot.time_ns = time_ns;
  return snapshot;
}

constexpr Moments kMoments = {.sum = 8, .squares_sum = 16, .max_abs = 3, .zeros = 1};

class AwaitedSnapshotsTest : public testing::Test {
 protected:
  AwaitedSnapshots awaited_;
  AwaitedSnapshots::Snapshot taken_;
};

TEST_F(AwaitedSnapshotsTest, HaveNumbersFromOneThatNeverComeBack) {
  EXPECT_EQ(awaited_.Await(SnapshotOf(1)), 1u);
  EXPECT_EQ(awaited_.Await(SnapshotOf(1)), 2u);
  ASSERT_TRUE(awaited_.Take(2, &taken_));
  EXPECT_EQ(awaited_.Await(SnapshotOf(1)), 3u);
}

TEST_F(AwaitedSnapshotsTest, AGradientIsFilledInAtItsPlaceAlone) {
  const uint64_t number = awaited_.Await(SnapshotOf(3));
  awaited_.AddGradient(number, 1, kMoments);
  ASSERT_TRUE(awaited_.Take(number, &taken_));
  const StatsParameter& told = taken_.parameters[1];
  EXPECT_EQ(told.flags, StatsParameter::kGradientRead);
  EXPECT_EQ(told.gradient_mean, 2);
  EXPECT_EQ(told.gradient_std, 0) << "four elements of 2: squares of 16 are those of the mean";
  EXPECT_EQ(told.gradient_norm, 4);
  EXPECT_EQ(told.gradient_max_abs, 3);
  EXPECT_EQ(told.gradient_zeros, 1u);
  for (const size_t other : {0, 2}) {
    EXPECT_EQ(taken_.parameters[other].flags, 0);
    EXPECT_EQ(taken_.parameters[other].gradient_norm, 0);
  }
}

TEST_F(AwaitedSnapshotsTest, WhatIsKnownOfAParameterStaysWhenMoreIsFilledIn) {
  AwaitedSnapshots::Snapshot snapshot = SnapshotOf(1);
  snapshot.parameters[0].flags = StatsParameter::kEps | StatsParameter::kHasGradient;
  const uint64_t number = awaited_.Await(std::move(snapshot));
  awaited_.AddUpdate(number, 0, {.before_squares = 25, .change_squares = 9});
  awaited_.AddGradient(number, 0, kMoments);
  ASSERT_TRUE(awaited_.Take(number, &taken_));
  const StatsParameter& told = taken_.parameters[0];
  EXPECT_EQ(told.flags, StatsParameter::kEps | StatsParameter::kHasGradient |
                            StatsParameter::kUpdateRead | StatsParameter::kGradientRead);
  EXPECT_EQ(told.weight_norm, 5);
  EXPECT_EQ(told.update_norm, 3);
}

TEST_F(AwaitedSnapshotsTest, AnswersForASnapshotThatIsGoneChangeNoOther) {
  const uint64_t gone = awaited_.Await(SnapshotOf(1));
  const uint64_t there = awaited_.Await(SnapshotOf(1));
  ASSERT_TRUE(awaited_.Take(gone, &taken_));
  awaited_.AddGradient(gone, 0, kMoments);
  awaited_.AddUpdate(gone, 0, {.before_squares = 1, .change_squares = 1});
  awaited_.AddGradient(0, 0, kMoments);
  awaited_.AddGradient(there + 1, 0, kMoments);
  ASSERT_TRUE(awaited_.Take(there, &taken_));
  EXPECT_EQ(taken_.parameters[0].flags, 0);
}

TEST_F(AwaitedSnapshotsTest, AnswersForAPlaceThatASnapshotLacksChangeNothing) {
  AwaitedSnapshots::Snapshot two = SnapshotOf(3);
  two.parameters.pop_back();  // its memory stays, and what is written there would be seen
  const uint64_t number = awaited_.Await(std::move(two));
  awaited_.AddGradient(number, 2, kMoments);
  awaited_.AddUpdate(number, UINT32_MAX, {.before_squares = 1, .change_squares = 1});
  const uint64_t empty = awaited_.Await(SnapshotOf(0));
  awaited_.AddGradient(empty, 0, kMoments);
  ASSERT_TRUE(awaited_.Take(number, &taken_));
  ASSERT_GE(taken_.parameters.capacity(), 3u);
  for (size_t place = 0; place < 3; ++place) {
    EXPECT_EQ(taken_.parameters.data()[place].flags, 0) << place;
  }
  ASSERT_TRUE(awaited_.Take(empty, &taken_));
  EXPECT_TRUE(taken_.parameters.empty());
}

TEST_F(AwaitedSnapshotsTest, EachIsTakenOnceAndLeavesTheOthers) {
  for (uint64_t time_ns = 1; time_ns <= 3; ++time_ns) awaited_.Await(SnapshotOf(1, time_ns));
  ASSERT_TRUE(awaited_.Take(2, &taken_));
  EXPECT_EQ(taken_.time_ns, 2u);
  EXPECT_FALSE(awaited_.Take(2, &taken_));
  ASSERT_TRUE(awaited_.TakeFirst(&taken_));
  EXPECT_EQ(taken_.time_ns, 1u);
  ASSERT_TRUE(awaited_.TakeFirst(&taken_));
  EXPECT_EQ(taken_.time_ns, 3u);
  EXPECT_FALSE(awaited_.TakeFirst(&taken_));
  EXPECT_EQ(taken_.time_ns, 3u) << "what was taken before is left alone";
}

TEST_F(AwaitedSnapshotsTest, AreFullAtTheirMostAndHaveRoomAgainOnceOneIsTaken) {
  for (size_t i = 0; i < AwaitedSnapshots::kAwaitedMax; ++i) {
    EXPECT_TRUE(awaited_.HasRoom()) << i;
    awaited_.Await(SnapshotOf(1));
  }
  EXPECT_FALSE(awaited_.HasRoom());
  ASSERT_TRUE(awaited_.TakeFirst(&taken_));
  EXPECT_TRUE(awaited_.HasRoom());
}

TEST_F(AwaitedSnapshotsTest, AnUpdateOfSomethingThatWasZeroHasANormWithoutAWeightsNorm) {
  StatsParameter told{};
  FillUpdate({.before_squares = 0, .change_squares = 4}, &told);
  EXPECT_EQ(told.update_norm, 2);
  EXPECT_EQ(told.weight_norm, 0);
}

// One thread awaits and takes while another fills in: whoever was taken has both figures or none.
TEST_F(AwaitedSnapshotsTest, AThreadMayFillInWhileAnotherTakes) {
  constexpr uint64_t kSnapshots = 2'000;
  std::atomic<uint64_t> newest{0};
  std::atomic<bool> stop{false};
  std::thread answering([&] {
    while (!stop) {
      awaited_.AddGradient(newest, 0, kMoments);
      std::this_thread::yield();
    }
  });
  uint64_t filled = 0;
  for (uint64_t i = 0; i < kSnapshots; ++i) {
    const uint64_t number = awaited_.Await(SnapshotOf(1));
    newest = number;
    if (i % 64 == 0) std::this_thread::yield();
    ASSERT_TRUE(awaited_.Take(number, &taken_));
    const StatsParameter& told = taken_.parameters[0];
    const bool read = (told.flags & StatsParameter::kGradientRead) != 0;
    ASSERT_EQ(told.gradient_norm, read ? 4 : 0);
    ASSERT_EQ(told.gradient_zeros, read ? 1u : 0u);
    filled += read;
  }
  stop = true;
  answering.join();
  EXPECT_LE(filled, kSnapshots);
  EXPECT_TRUE(awaited_.HasRoom());
}

}  // namespace
}  // namespace nanwatch
