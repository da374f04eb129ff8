// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/figures/trail.h"

#include <gtest/gtest.h>

#include <memory>

#include "proto/wire/step_ring.h"
#include "shim/observe/torch/op_table.h"
#include "tests/shim/observe/events/observed_process.h"
#include "tests/shim/observe/figures/magnitudes.h"

namespace nanwatch {
namespace {

using wire::ElementType;

class TrailTest : public testing::Test {
 protected:
  TrailTest() {
    log_.name = "aten::log";
    mul_.name = "aten::mul";
    layer_.path = "blocks.0";
  }
  ~TrailTest() override { scope_stack = ScopeStack{}; }

  void Record(const OpTraits& op, float largest, uint32_t iteration) {
    RecordTrail(thread_.get(), &op, ElementType::kFloat32, OfFloat(largest), iteration, headroom_);
  }
  const TrailStep& Newest() const {
    return thread_->trail[(thread_->trail_steps - 1) & (ThreadState::kTrailSteps - 1)];
  }

  ObservedProcess process_;
  RecordingLevel level_;
  ProcessSegment& segment_ = *new ProcessSegment(process_.entry(), level_);
  Headroom headroom_{segment_};
  Trail trail_{segment_};
  std::unique_ptr<ThreadState> thread_ = std::make_unique<ThreadState>();
  OpTraits log_{};
  OpTraits mul_{};
  Layer layer_;
};

TEST_F(TrailTest, KeepsOpLayerIterationAndLargestOfACleanResult) {
  scope_stack.top = &layer_;
  scope_stack.depth = 1;
  Record(log_, 3.5f, 7);
  EXPECT_EQ(thread_->trail_steps, 1u);
  EXPECT_EQ(Newest().op, &log_);
  EXPECT_EQ(Newest().layer, &layer_);
  EXPECT_EQ(Newest().iteration, 7u);
  EXPECT_EQ(Newest().phase, wire::Phase::kForward);
  EXPECT_EQ(LargestValue(Newest().magnitude, Newest().type), 3.5);
}

TEST_F(TrailTest, TakesAnOpOfARunningNodeForBackwardAndTheNodesLayer) {
  thread_->nodes_open = 1;
  thread_->node_layer = &layer_;
  Record(mul_, 1.0f, 0);
  EXPECT_EQ(Newest().phase, wire::Phase::kBackward);
  EXPECT_EQ(Newest().layer, &layer_);
}

TEST_F(TrailTest, TakesAnOpOfAModuleCalledInANodeForARecomputedForward) {
  Layer inner;
  thread_->nodes_open = 1;
  thread_->node_layer = &layer_;
  scope_stack.top = &inner;
  scope_stack.depth = 1;
  Record(mul_, 1.0f, 0);
  EXPECT_EQ(Newest().phase, wire::Phase::kForward);
  EXPECT_EQ(Newest().layer, &inner);
}

TEST_F(TrailTest, TakesAnOpOfAnOpenUpdateForTheOptimizers) {
  thread_->optimizer_depth = 1;
  Record(mul_, 1.0f, 0);
  EXPECT_EQ(Newest().phase, wire::Phase::kOptimizer);
}

TEST_F(TrailTest, HandsAResultNearItsTypesLimitToTheHeadroom) {
  scope_stack.top = &layer_;
  scope_stack.depth = 1;
  wire::TelemetryEntry telemetry{};
  Record(mul_, 1.0f, 0);
  EXPECT_EQ(headroom_.Take(&telemetry), 0);
  Record(mul_, 1.0e38f, 0);
  EXPECT_GT(headroom_.Take(&telemetry), 0);
}

TEST_F(TrailTest, HandsNothingOfABackwardNodeToTheHeadroom) {
  thread_->nodes_open = 1;
  thread_->node_layer = &layer_;
  wire::TelemetryEntry telemetry{};
  Record(mul_, 1.0e38f, 0);
  EXPECT_EQ(headroom_.Take(&telemetry), 0);
}

class PublishedTrail : public TrailTest {
 protected:
  // What the daemon reads next.
  const wire::TrailEntry& Read() {
    MappedSegment mapped(process_.place());
    EXPECT_TRUE(mapped.Read<wire::TrailReader>(wire::SectionType::kTrail).Read(*entry_));
    return *entry_;
  }

  std::unique_ptr<wire::TrailEntry> entry_ = std::make_unique<wire::TrailEntry>();
};

TEST_F(PublishedTrail, HasTheOpsBeforeAFindingTheOldestFirst) {
  Emitter* emitter = segment_.Ensure();
  ASSERT_NE(emitter, nullptr);
  scope_stack.top = &layer_;
  scope_stack.depth = 1;
  Record(log_, 1.0f, 4);
  Record(mul_, 2.0f, 5);
  trail_.Keep(thread_.get(), /*value=*/77);
  const wire::TrailEntry& read = Read();
  ASSERT_EQ(read.count, 2u);
  EXPECT_EQ(read.value, 77u);
  EXPECT_EQ(read.ops[0].op, emitter->Intern("aten::log"));
  EXPECT_EQ(read.ops[1].op, emitter->Intern("aten::mul"));
  EXPECT_EQ(read.ops[0].largest, 1.0);
  EXPECT_EQ(read.ops[1].iteration, 5u);
  EXPECT_EQ(read.ops[1].layer, emitter->Intern("blocks.0"));
}

TEST_F(PublishedTrail, SaysOfASampleThatTheResultIsAtLeastThatLarge) {
  ASSERT_NE(segment_.Ensure(), nullptr);
  RecordTrail(thread_.get(), &mul_, ElementType::kFloat32, OfFloat(2.0f, Magnitude::Kind::kAtLeast),
              0, headroom_);
  RecordTrail(thread_.get(), &mul_, ElementType::kFloat32, {0, Magnitude::Kind::kNone}, 0,
              headroom_);
  trail_.Keep(thread_.get(), 1);
  const wire::TrailEntry& read = Read();
  EXPECT_EQ(read.ops[0].known, wire::TrailOp::kAtLeast);
  EXPECT_EQ(read.ops[1].known, wire::TrailOp::kNothing);
}

TEST_F(PublishedTrail, HasTheNewestWhereAThreadRanMoreThanThereIsRoomFor) {
  ASSERT_NE(segment_.Ensure(), nullptr);
  const uint32_t ops = 3 * wire::kTrailOpsMax + 17;
  for (uint32_t i = 0; i < ops; ++i) Record(mul_, 1.0f, i);
  trail_.Keep(thread_.get(), 1);
  const wire::TrailEntry& read = Read();
  ASSERT_EQ(read.count, static_cast<uint32_t>(wire::kTrailOpsMax));
  EXPECT_EQ(read.ops[0].iteration, ops - wire::kTrailOpsMax);
  EXPECT_EQ(read.ops[wire::kTrailOpsMax - 1].iteration, ops - 1);
}

TEST_F(PublishedTrail, IsNotKeptOfAThreadThatRanNothing) {
  ASSERT_NE(segment_.Ensure(), nullptr);
  trail_.Keep(thread_.get(), 1);
  MappedSegment mapped(process_.place());
  EXPECT_FALSE(mapped.Read<wire::TrailReader>(wire::SectionType::kTrail).Read(*entry_));
}

TEST_F(PublishedTrail, IsNotKeptWithoutASegment) {
  Record(mul_, 1.0f, 0);
  trail_.Keep(thread_.get(), 1);
  EXPECT_TRUE(process_.place().Files().empty());
}

}  // namespace
}  // namespace nanwatch
