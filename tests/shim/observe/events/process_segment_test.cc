// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/process_segment.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "shim/observe/torch/op_table.h"
#include "tests/shim/observe/events/observed_process.h"

namespace nanwatch {
namespace {

class ProcessSegmentTest : public testing::Test {
 protected:
  ObservedProcess process_;
  RecordingLevel level_;
  ProcessSegment& segment_ = *new ProcessSegment(process_.entry(), level_);  // leaked, as in a job
};

TEST_F(ProcessSegmentTest, LeavesNoFileUntilThereIsSomethingToReport) {
  EXPECT_EQ(segment_.emitter(), nullptr);
  EXPECT_TRUE(process_.place().Files().empty());
  Emitter* made = segment_.Ensure();
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(process_.place().Files().size(), 1u);
  EXPECT_EQ(segment_.emitter(), made);
  EXPECT_EQ(segment_.Ensure(), made);
  EXPECT_EQ(process_.place().Files().size(), 1u);
}

TEST_F(ProcessSegmentTest, GivesThreadsThatAskAtOnceTheSameEmitter) {
  Emitter* got[4] = {};
  std::vector<std::thread> threads;
  for (Emitter*& own : got) threads.emplace_back([&] { own = segment_.Ensure(); });
  for (std::thread& thread : threads) thread.join();
  ASSERT_NE(got[0], nullptr);
  for (Emitter* own : got) EXPECT_EQ(own, got[0]);
  EXPECT_EQ(process_.place().Files().size(), 1u);
}

TEST_F(ProcessSegmentTest, HandsRequestsToTheLevelOnceTheSegmentIsThere) {
  segment_.Listen();
  EXPECT_TRUE(level_.listened_to.empty());
  ASSERT_NE(segment_.Ensure(), nullptr);
  EXPECT_EQ(level_.listened_to.size(), 1u);
}

TEST_F(ProcessSegmentTest, KeepsRequestsBackInAProcessThatRanAlreadyUntilItIsReady) {
  process_.ComesLate();
  auto& late = *new ProcessSegment(process_.entry(), level_);
  ASSERT_NE(late.Ensure(), nullptr);
  EXPECT_TRUE(level_.listened_to.empty());
  late.Listen();
  EXPECT_EQ(level_.listened_to.size(), 1u);
}

TEST_F(ProcessSegmentTest, FollowsRequestsInAForkedChildOfSuchAProcessAtOnce) {
  process_.ComesLate();
  auto& child = *new ProcessSegment(process_.entry(), level_);
  child.BecomeChildOf(4711);
  ASSERT_NE(child.Ensure(), nullptr);
  EXPECT_EQ(level_.listened_to.size(), 1u);
}

TEST_F(ProcessSegmentTest, MakesNoneForACallOfAModuleInAForkedChild) {
  segment_.BecomeChildOf(4711);
  EXPECT_TRUE(segment_.EnsureForCall());
  EXPECT_TRUE(segment_.is_forked());
  EXPECT_TRUE(process_.place().Files().empty());
}

TEST_F(ProcessSegmentTest, MakesOneForACallOfAModuleElsewhere) {
  EXPECT_TRUE(segment_.EnsureForCall());
  EXPECT_FALSE(segment_.is_forked());
  EXPECT_EQ(process_.place().Files().size(), 1u);
}

TEST_F(ProcessSegmentTest, SaysOnceWhyThereCanBeNoneAndTurnsTheObserverOff) {
  std::ofstream(process_.place().directory()) << "a file in the way";
  EXPECT_EQ(segment_.Ensure(), nullptr);
  EXPECT_FALSE(process_.active());
  EXPECT_EQ(segment_.Ensure(), nullptr);
  EXPECT_FALSE(segment_.EnsureForCall());
  ASSERT_EQ(process_.said().size(), 1u);
  EXPECT_NE(process_.said()[0].find(process_.place().directory()), std::string::npos);
}

TEST_F(ProcessSegmentTest, HasNoIdOfAnOpsNameWithoutASegmentAndAnIdThatStaysWithOne) {
  OpTraits op{};
  op.name = "aten::log";
  EXPECT_EQ(segment_.NameOf(op), 0u);
  Emitter* emitter = segment_.Ensure();
  ASSERT_NE(emitter, nullptr);
  const uint32_t id = segment_.NameOf(op);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(emitter->Intern("aten::log"), id);
  EXPECT_EQ(segment_.NameOf(op), id);
  OpTraits nameless{};
  EXPECT_EQ(segment_.NameOf(nameless), 0u);
}

TEST(IsLateTest, IsSaidByTheLevelThatWasAskedForAndNeverByAnOlderEntry) {
  ObservedProcess process;
  EXPECT_FALSE(IsLate(process.entry()));
  process.ComesLate();
  EXPECT_TRUE(IsLate(process.entry()));
  NanwatchEntry older = process.entry();
  older.struct_bytes = offsetof(NanwatchEntry, late_level);
  EXPECT_FALSE(IsLate(older));
}

}  // namespace
}  // namespace nanwatch
