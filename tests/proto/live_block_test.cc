// SPDX-License-Identifier: Apache-2.0
#include "proto/wire/live_block.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "tests/proto/shared_ring.h"

namespace nanwatch::wire {
namespace {

TEST(LiveBlock, GivesBackWhatWasPublished) {
  const SharedMemory memory(sizeof(LiveBlock));
  auto* block = memory.as<LiveBlock>();
  LiveWriter writer(block);
  LiveFacts facts;
  facts.ops_seen = 1;
  facts.tensors_checked = 2;
  facts.bytes_checked = 3;
  facts.values_bad = 4;
  facts.overhead = {.percent = 1.25,
                    .low = -0.5,
                    .high = 2,
                    .pairs = 24,
                    .steps_off = (uint64_t{1} << 40) + 7,
                    .off_now = true};
  facts.unchecked[3] = 7;
  facts.control_applied = 8;
  facts.last_clean_collective = 9;
  facts.state = LiveState::kWatching;
  facts.level = Level::kFull;
  facts.clocks.passes = 10;
  facts.loss = 0.5;
  facts.loss_known = true;
  writer.Publish(facts, 11);
  block->values_dropped = 12;
  block->names_dropped = 13;
  block->sites_dropped = 14;
  block->tickets = 15;

  const LiveCopy copy = ReadLive(*block);
  EXPECT_TRUE(copy.consistent);
  EXPECT_EQ(copy.facts.ops_seen, 1u);
  EXPECT_EQ(copy.facts.tensors_checked, 2u);
  EXPECT_EQ(copy.facts.bytes_checked, 3u);
  EXPECT_EQ(copy.facts.values_bad, 4u);
  EXPECT_EQ(copy.facts.overhead.percent, 1.25);
  EXPECT_EQ(copy.facts.overhead.low, -0.5);
  EXPECT_EQ(copy.facts.overhead.high, 2);
  EXPECT_EQ(copy.facts.overhead.pairs, 24u);
  EXPECT_EQ(copy.facts.overhead.steps_off, (uint64_t{1} << 40) + 7);
  EXPECT_TRUE(copy.facts.overhead.off_now);
  EXPECT_EQ(copy.facts.unchecked[3], 7u);
  EXPECT_EQ(copy.facts.control_applied, 8u);
  EXPECT_EQ(copy.facts.last_clean_collective, 9u);
  EXPECT_EQ(copy.facts.state, LiveState::kWatching);
  EXPECT_EQ(copy.facts.level, Level::kFull);
  EXPECT_EQ(copy.facts.clocks.passes, 10u);
  EXPECT_EQ(copy.facts.loss, 0.5);
  EXPECT_TRUE(copy.facts.loss_known);
  EXPECT_EQ(copy.heartbeat_ns, 11u);
  EXPECT_EQ(copy.values_dropped, 12u);
  EXPECT_EQ(copy.names_dropped, 13u);
  EXPECT_EQ(copy.sites_dropped, 14u);
  EXPECT_EQ(copy.tickets, 15u);
}

TEST(LiveBlock, KnowsNoOverheadWhereAnOlderWriterLeftZeros) {
  const SharedMemory memory(sizeof(LiveBlock));
  const LiveCopy copy = ReadLive(*memory.as<LiveBlock>());
  EXPECT_EQ(copy.facts.overhead.pairs, 0u);
  EXPECT_EQ(copy.facts.overhead.steps_off, 0u);
  EXPECT_FALSE(copy.facts.overhead.off_now);
}

TEST(LiveBlock, KnowsNoLossBeforeTheFirst) {
  const SharedMemory memory(sizeof(LiveBlock));
  LiveWriter writer(memory.as<LiveBlock>());
  writer.Publish({}, 1);
  const LiveCopy copy = ReadLive(*memory.as<LiveBlock>());
  EXPECT_FALSE(copy.facts.loss_known);
  EXPECT_TRUE(std::isnan(copy.facts.loss));
}

TEST(LiveBlock, EndsAndSaysSoWhenTheWriterDiedInTheMiddle) {
  const SharedMemory memory(sizeof(LiveBlock));
  auto* block = memory.as<LiveBlock>();
  block->sequence = 5;
  block->ops_seen = 3;
  const LiveCopy copy = ReadLive(*block);
  EXPECT_FALSE(copy.consistent);
  EXPECT_EQ(copy.facts.ops_seen, 3u);
}

TEST(LiveBlock, NeverMixesTheClocksOfTwoMomentsWhenItCallsThemConsistent) {
  const SharedMemory memory(sizeof(LiveBlock));
  auto* block = memory.as<LiveBlock>();
  std::atomic<bool> stop{false};
  std::thread publisher([&] {
    LiveWriter writer(block);
    LiveFacts facts;
    for (uint32_t i = 1; !stop; ++i) {
      facts.clocks.optimizer_steps[0] = facts.clocks.optimizer_count = i;
      facts.loss = i;
      writer.Publish(facts, i);
    }
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int consistent = 0; consistent < 1'000'000;) {
    const LiveCopy copy = ReadLive(*block);
    if (!copy.consistent || copy.facts.clocks.optimizer_count == 0) continue;
    ++consistent;
    EXPECT_EQ(copy.facts.clocks.optimizer_steps[0], copy.facts.clocks.optimizer_count);
    EXPECT_EQ(copy.facts.loss, copy.facts.clocks.optimizer_count);
    if (HasFailure()) break;
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << consistent << " consistent looks only";
      break;
    }
  }
  stop = true;
  publisher.join();
}

}  // namespace
}  // namespace nanwatch::wire
