// SPDX-License-Identifier: Apache-2.0
// Fault 6: a thread of a living job stands still between reserving a record and completing it.
// Other threads' records are read, and its slots are given to nobody before its process is dead: what it
// stores late is in its own record.
#include <cstring>
#include <random>

#include "tests/faults/scene.h"

namespace nanwatch {
namespace {

constexpr uint64_t kHoleWaitMs = 2'100;

class StoppedWriterTest : public FaultTest {
 protected:
  // The ring's slot with this number.
  static wire::Slot& SlotOf(SegmentBuilder& job, uint64_t number) {
    auto* slots = reinterpret_cast<wire::Slot*>(&job.ring() + 1);
    return slots[number % kSmallLayout.ring_slots];
  }
  // As the thread does that goes on at last: its words, then the commit of a record of one slot.
  static void CompleteLate(SegmentBuilder& job, uint64_t number, uint64_t ticket) {
    wire::RecordHeader header{};
    header.bytes = sizeof(wire::EndRecord);
    header.kind = static_cast<uint16_t>(wire::RecordKind::kEnd);
    header.ticket = ticket;
    unsigned char record[2 * wire::kSlotPayloadBytes]{};
    std::memcpy(record, &header, sizeof header);
    std::memcpy(SlotOf(job, number).payload, record, wire::kSlotPayloadBytes);
    std::memcpy(SlotOf(job, number + 1).payload, record + wire::kSlotPayloadBytes,
                wire::kSlotPayloadBytes);
    SlotOf(job, number + 1).commit.store(0);
    SlotOf(job, number).commit.store(number + 1);
  }
  // Threads that stand still, of which each holds two slots, and three records behind them; then as
  // long as the daemon waits for them.
  void LeaveHoles(SegmentBuilder& job, int threads) {
    for (int i = 0; i < threads; ++i) job.LeaveHole(2);
    for (int i = 0; i < 3; ++i) job.WriteValue("aten::log", "a");
    Tick();
    Tick(kHoleWaitMs);
    Tick(kHoleWaitMs);
  }
};

TEST_F(StoppedWriterTest, ItsSlotsAreGivenToNobodyAndItsLateRecordIsRead) {
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  Start();
  Tick();
  const uint64_t hole = job.ring().reserved_slots.load();
  job.LeaveHole(2);
  uint64_t written = 0;
  for (int i = 0; i < 5; ++i) written = job.WriteValue("aten::log", "a");
  Tick();
  Tick(kHoleWaitMs);
  Tick(kHoleWaitMs);
  EXPECT_EQ(TicketsOf(1), written) << "the others' records are read";
  EXPECT_EQ(FactsOf(1).state().holes(), 2u);
  EXPECT_EQ(job.ring().released_slots.load(), hole) << "and none of its slots is released";
  // The ring runs full, and counts.
  const uint64_t dropped = job.dropped();
  while (job.dropped() == dropped) written = job.WriteValue("aten::log", "a");
  Tick();
  CompleteLate(job, hole, 1'000'000);
  Tick(1'100);
  EXPECT_EQ(TicketsOf(1), written - job.dropped() + 1) << "the late one, too";
  EXPECT_EQ(FactsOf(1).state().holes(), 0u);
  EXPECT_EQ(job.ring().released_slots.load(), job.ring().reserved_slots.load());
}

TEST_F(StoppedWriterTest, ANewDaemonKeepsItsSlotsToo) {
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  Start();
  Tick();
  const uint64_t hole = job.ring().reserved_slots.load();
  job.LeaveHole(2);
  job.WriteValue("aten::log", "a");
  Tick();
  Tick(kHoleWaitMs);
  Tick(kHoleWaitMs);
  Start();
  Tick();
  job.WriteValue("aten::log", "a");
  Tick();
  EXPECT_EQ(job.ring().released_slots.load(), hole);
  CompleteLate(job, hole, 1'000'000);
  Tick(1'100);
  EXPECT_EQ(TicketsOf(1), 3u);
}

TEST_F(StoppedWriterTest, WhatItCompletesWhileNoDaemonRunsIsReadByTheNext) {
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  Start();
  Tick();
  const uint64_t hole = job.ring().reserved_slots.load();
  LeaveHoles(job, 1);
  ASSERT_EQ(FactsOf(1).state().holes(), 2u);
  daemon_.reset();
  CompleteLate(job, hole, 1'000'000);
  Start();
  Tick();
  Tick(1'100);
  EXPECT_EQ(TicketsOf(1), 4u);
  EXPECT_EQ(FactsOf(1).state().holes(), 0u);
  EXPECT_EQ(FactsOf(1).state().records_malformed(), 0u);
  EXPECT_EQ(job.ring().released_slots.load(), job.ring().reserved_slots.load());
}

TEST_F(StoppedWriterTest, OfADeadProcessItIsAHole) {
  IdleProcess process;
  SegmentBuilder job(options_.segment_dir, {.nonce = 1, .pid = process.pid()});
  Start();
  Tick();
  job.LeaveHole(2);
  job.WriteValue("aten::log", "a");
  Tick();
  Tick(kHoleWaitMs);
  Tick(kHoleWaitMs);
  process.Kill();
  Tick();
  EXPECT_EQ(TicketsOf(1), 1u);
  EXPECT_EQ(FactsOf(1).state().holes(), 2u);
  EXPECT_EQ(daemon_->intake().open_segments(), 0u);
}

// Two threads, one behind the other, of which each goes on when it likes.
TEST_F(StoppedWriterTest, OfTwoThatStandSideBySideBothAreRead) {
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  Start();
  Tick();
  const uint64_t hole = job.ring().reserved_slots.load();
  LeaveHoles(job, 2);
  ASSERT_EQ(FactsOf(1).state().holes(), 4u);
  CompleteLate(job, hole, 1'000'000);
  Tick(1'100);
  EXPECT_EQ(TicketsOf(1), 4u);
  EXPECT_EQ(FactsOf(1).state().holes(), 2u) << "the other one is still missed";
  EXPECT_EQ(job.ring().released_slots.load(), hole + 2);
  CompleteLate(job, hole + 2, 1'000'001);
  Tick(1'100);
  EXPECT_EQ(TicketsOf(1), 5u);
  EXPECT_EQ(FactsOf(1).state().holes(), 0u);
  EXPECT_EQ(job.ring().released_slots.load(), job.ring().reserved_slots.load());
}

TEST_F(StoppedWriterTest, WhatIsCompletedBehindOneThatStandsIsReadByTheNextDaemon) {
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  Start();
  Tick();
  const uint64_t hole = job.ring().reserved_slots.load();
  LeaveHoles(job, 2);
  ASSERT_EQ(FactsOf(1).state().holes(), 4u);
  daemon_.reset();
  CompleteLate(job, hole + 2, 1'000'001);
  Start();
  Tick();
  Tick(1'100);
  EXPECT_EQ(TicketsOf(1), 4u);
  EXPECT_EQ(FactsOf(1).state().holes(), 2u);
  EXPECT_EQ(job.ring().released_slots.load(), hole);
}

}  // namespace
}  // namespace nanwatch
