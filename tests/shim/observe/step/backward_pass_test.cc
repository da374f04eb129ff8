// SPDX-License-Identifier: Apache-2.0
// Passes in, records out.
#include "shim/observe/step/backward_pass.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "tests/shim/observe/observed_training.h"

namespace nanwatch {
namespace {

using wire::PassRecord;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class BackwardPassesTest : public testing::Test {
 protected:
  BackwardPassesTest() {
    root_.op = &on_.Op("aten::mse_loss");
    root_.sequence = 8;
  }
  uint64_t Begin(int task, const SequenceEntry* root) {
    return on_.passes.OnBegin(&on_.thread, task, root);
  }
  // The root is a bad value, of which no record was written.
  void MakeRootBad() {
    RecentValues::Kept kept{};
    kept.record.header.kind = static_cast<uint16_t>(wire::RecordKind::kValue);
    kept.record.header.bytes = sizeof kept.record;
    kept.record.header.ticket = on_.emitter.DrawTicket();
    kept.op = 3;
    root_.value = on_.recent.Add(kept);
    root_.site = 4;
  }
  void Leaf(const at::Tensor& gradient) {
    const PlainTensor plain = ObservedTraining::Plain(gradient);
    on_.passes.RecordLeaf(&on_.thread, &plain, nullptr);
  }
  std::vector<PassRecord> Passes() { return on_.Emitted<PassRecord>(wire::RecordKind::kPass); }

  ObservedTraining on_;
  SequenceEntry root_{};
  at::Tensor bad_ = at::full({2}, kNan);
  at::Tensor good_ = at::zeros({2});
};

TEST_F(BackwardPassesTest, GiveEveryPassANumberOfItsOwnAndKnowOneByItsTask) {
  const uint64_t first = Begin(1, &root_);
  EXPECT_EQ(Begin(1, &root_), first) << "the engine has a thread for each GPU";
  EXPECT_NE(Begin(2, &root_), first);
}

TEST_F(BackwardPassesTest, MakeAnUpdateByHandDue) {
  Begin(1, &root_);
  EXPECT_TRUE(on_.marks.plain_update_due);
}

TEST_F(BackwardPassesTest, RecordNothingOfACleanPass) {
  Begin(1, &root_);
  Leaf(good_);
  on_.passes.Close(&on_.thread);
  EXPECT_TRUE(Passes().empty());
  EXPECT_EQ(on_.progress.Now().passes, 1u);
}

TEST_F(BackwardPassesTest, CountAPassOnceHoweverManyLeavesItHas) {
  Begin(1, &root_);
  Leaf(good_);
  Leaf(good_);
  EXPECT_EQ(on_.progress.Now().passes, 1u);
}

TEST_F(BackwardPassesTest, SayThatTheLossWasScaled) {
  MakeRootBad();
  Begin(1, &root_);
  on_.losses.SetScaled(true);
  Begin(2, &root_);
  ASSERT_EQ(Passes().size(), 3u) << "the first ends where the second begins";
  EXPECT_EQ(Passes().front().flags & PassRecord::kScaled, 0u);
  EXPECT_NE(Passes().back().flags & PassRecord::kScaled, 0u);
}

TEST_F(BackwardPassesTest, RecordABadRootAndWriteItsValue) {
  MakeRootBad();
  Begin(1, &root_);
  ASSERT_EQ(Passes().size(), 1u);
  EXPECT_NE(Passes()[0].flags & PassRecord::kRootBad, 0u);
  EXPECT_EQ(Passes()[0].root_value, root_.value.ticket);
  EXPECT_EQ(on_.Values().size(), 1u) << "it matters, so it is written now";
}

TEST_F(BackwardPassesTest, KnowTheOpAgainThatPassesBeganAt) {
  Begin(1, &root_);
  EXPECT_TRUE(on_.loss_roots.Has(on_.segment.NameOf(*root_.op), 0));
}

TEST_F(BackwardPassesTest, RecordTheNumberOfACleanLoss) {
  const float loss = 0.75f;
  on_.thread.last_scalar.Remember(7, wire::ElementType::kFloat32, &loss, sizeof loss);
  Begin(1, &root_);
  double number = 0;
  EXPECT_TRUE(on_.losses.Last(&number));
  EXPECT_EQ(number, 0.75);
}

TEST_F(BackwardPassesTest, DoNotTakeAScaledLossForTheNumberOfIt) {
  on_.losses.SetScaled(true);
  const float loss = 4096;
  on_.thread.last_scalar.Remember(7, wire::ElementType::kFloat32, &loss, sizeof loss);
  Begin(1, &root_);
  double number = 0;
  EXPECT_FALSE(on_.losses.Last(&number));
}

TEST_F(BackwardPassesTest, RecordABadLeafWithWhatItIsKnownAs) {
  Begin(1, &root_);
  const BadOutput known{ObservedTraining::Plain(bad_), 0, false};
  on_.known_bad.Remember(&known, 1, {.value = {9, 1}, .site = 2, .written = Written{}});
  Leaf(good_);
  Leaf(bad_);
  ASSERT_EQ(Passes().size(), 1u);
  EXPECT_NE(Passes()[0].flags & PassRecord::kLeafBad, 0u);
  EXPECT_EQ(Passes()[0].bad[0].value, 9u);
  on_.passes.Close(&on_.thread);
  ASSERT_EQ(Passes().size(), 2u);
  EXPECT_EQ(Passes()[1].leaves, 2u);
  EXPECT_EQ(Passes()[1].leaves_bad, 1u);
  EXPECT_NE(Passes()[1].flags & PassRecord::kEnded, 0u);
}

TEST_F(BackwardPassesTest, EndAPassWhereTheNextBegins) {
  MakeRootBad();
  Begin(1, &root_);
  root_.value = {};
  Begin(2, &root_);
  ASSERT_EQ(Passes().size(), 2u);
  EXPECT_EQ(Passes()[1].pass, Passes()[0].pass);
  EXPECT_NE(Passes()[1].flags & PassRecord::kEnded, 0u);
}

TEST_F(BackwardPassesTest, RecordEverMoreRarelyWhatHappensInEveryPass) {
  MakeRootBad();
  for (int task = 1; task <= 20; ++task) Begin(task, &root_);
  const auto passes = Passes();
  uint32_t begun = 0;
  for (const PassRecord& pass : passes) begun += (pass.flags & PassRecord::kEnded) == 0;
  EXPECT_EQ(begun, 16u);
}

TEST_F(BackwardPassesTest, HaveARootThatACallOfPythonsHasFoundBad) {
  RecentValues::Kept kept{};
  kept.record.header.kind = static_cast<uint16_t>(wire::RecordKind::kValue);
  kept.record.header.bytes = sizeof kept.record;
  kept.record.header.ticket = on_.emitter.DrawTicket();
  kept.record.site = 6;
  on_.passes.ExpectRoot(on_.recent.Add(kept));
  Begin(1, nullptr);
  ASSERT_EQ(Passes().size(), 1u);
  EXPECT_EQ(Passes()[0].root_site, 6u);
  root_.value = {};
  Begin(2, &root_);
  EXPECT_EQ(Passes().size(), 2u) << "the end of that one; the next has a root of its own";
}

TEST_F(BackwardPassesTest, LeaveAllToTheQueueInAJobWithAGpu) {
  on_.late.on = true;
  MakeRootBad();
  const uint64_t number = Begin(1, &root_);
  EXPECT_EQ(on_.late.passes, std::vector<uint64_t>({number}));
  EXPECT_TRUE(Passes().empty());
  on_.passes.RecordBegin(&on_.thread, number, &root_, true);
  EXPECT_EQ(Passes().size(), 1u);
}

TEST_F(BackwardPassesTest, RecordGradientsThatNoWatchedOpHasMade) {
  BackwardPasses::BadLeaves bad;
  bad.Add({5, 1}, wire::kHasNan, nullptr);
  on_.passes.OnBadGradients(&on_.thread, 10, 1, bad);
  ASSERT_EQ(Passes().size(), 1u);
  EXPECT_EQ(Passes()[0].leaves, 10u);
  EXPECT_EQ(Passes()[0].bad[0].value, 5u);
  EXPECT_NE(Passes()[0].flags & PassRecord::kRootUnknown, 0u);
}

TEST_F(BackwardPassesTest, HoldNoMoreBadLeavesThanARecordHasRoomFor) {
  BackwardPasses::BadLeaves bad;
  while (!bad.IsFull()) bad.Add({5, 1}, wire::kHasNan, nullptr);
  bad.Add({6, 2}, wire::kHasNan, nullptr);
  EXPECT_EQ(bad.count, static_cast<uint32_t>(wire::kSourcesMax));
}

}  // namespace
}  // namespace nanwatch
