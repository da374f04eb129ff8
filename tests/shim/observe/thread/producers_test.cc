// SPDX-License-Identifier: Apache-2.0
// Real graphs of autograd. What the observer would have recorded of the forward is recorded here.
#include "shim/observe/thread/producers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include "shim/observe/torch/grad_fn.h"

namespace nanwatch {
namespace {

class ProducersTest : public testing::Test {
 protected:
  ProducersTest() { view_.is_view = true; }

  // What a callback notes of the op that made the tensor.
  SequenceEntry& Record(const at::Tensor& made, const OpTraits& op) {
    const auto* node = GradFnOf(*made.unsafeGetTensorImpl());
    const auto sequence = static_cast<int64_t>(node->sequence_nr());
    SequenceEntry& entry = thread_->sequences[sequence & (ThreadState::kSequences - 1)];
    entry.sequence.store(sequence + 1, std::memory_order_relaxed);
    entry.op = &op;
    return entry;
  }
  static Producers Of(const at::Tensor& result) {
    return ProducersOf(*result.unsafeGetTensorImpl());
  }

  ThreadState* thread_ = ThreadStates::Mine();
  OpTraits computes_{};
  OpTraits view_{};
  at::Tensor leaf_ = at::ones({2, 3}).requires_grad_();
};

TEST_F(ProducersTest, OfATensorWithoutANodeAreNone) {
  const Producers producers = Of(at::ones({2}));
  EXPECT_FALSE(producers.any);
  EXPECT_FALSE(producers.complete);
}

TEST_F(ProducersTest, AreTheOpsAndLeavesThatTheNodeHasEdgesTo) {
  const at::Tensor made = leaf_.exp();
  const SequenceEntry& entry = Record(made, computes_);
  const Producers producers = Of(made.mul(leaf_));
  EXPECT_TRUE(producers.any);
  EXPECT_TRUE(producers.complete);
  EXPECT_FALSE(producers.unlinked);
  ASSERT_EQ(producers.made_count, 1);
  EXPECT_EQ(producers.made[0].Get(), &entry);
  ASSERT_EQ(producers.leaf_count, 1);
  EXPECT_EQ(producers.leaves[0]->unsafeGetTensorImpl(), leaf_.unsafeGetTensorImpl());
}

TEST_F(ProducersTest, AreFollowedThroughViews) {
  const at::Tensor view = leaf_.t();
  Record(view, view_);
  const at::Tensor made = leaf_.exp();
  const SequenceEntry& entry = Record(made, computes_);
  const at::Tensor view_of_made = made.t();
  Record(view_of_made, view_);
  const Producers producers = Of(view.add(view_of_made));
  EXPECT_TRUE(producers.complete);
  ASSERT_EQ(producers.made_count, 1);
  EXPECT_EQ(producers.made[0].Get(), &entry);
  EXPECT_EQ(producers.leaf_count, 1);
}

TEST_F(ProducersTest, AreIncompleteWhereAnOpWasNotSeen) {
  const at::Tensor unseen = leaf_.exp();
  const auto sequence =
      static_cast<int64_t>(GradFnOf(*unseen.unsafeGetTensorImpl())->sequence_nr());
  thread_->sequences[sequence & (ThreadState::kSequences - 1)].sequence.store(0);
  const Producers producers = Of(unseen.neg());
  EXPECT_TRUE(producers.any);
  EXPECT_FALSE(producers.complete);
}

TEST_F(ProducersTest, LeaveOutWhatNeedsNoGradient) {
  const Producers producers = Of(leaf_.mul(at::ones({2, 3})));
  EXPECT_TRUE(producers.complete);
  EXPECT_TRUE(producers.unlinked);
  EXPECT_EQ(producers.leaf_count, 1);
}

TEST_F(ProducersTest, BeyondTheRoomAreIncomplete) {
  std::vector<at::Tensor> parts;
  for (uint32_t i = 0; i <= Producers::kMax; ++i) {
    parts.push_back(leaf_.exp());
    Record(parts.back(), computes_);
  }
  const Producers producers = Of(at::cat(parts));
  EXPECT_EQ(producers.made_count, Producers::kMax);
  EXPECT_FALSE(producers.complete);
}

}  // namespace
}  // namespace nanwatch
