// SPDX-License-Identifier: Apache-2.0
// The queue of GPU events as memory, over one page.
#include "shim/observe/gpu/event_ring.h"

#include <gtest/gtest.h>

#include <vector>

namespace nanwatch {
namespace {

constexpr uint64_t kBytes = 4096;

class EventRingTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(ring_.Map(kBytes)); }

  // Published, with so many bytes in all; null: there was no room.
  SnapshotEvent* Add(uint64_t bytes) {
    auto* event = ring_.Reserve<SnapshotEvent>(bytes - sizeof(SnapshotEvent));
    if (event == nullptr) return nullptr;
    event->kind = EventKind::kSnapshot;
    ring_.Publish(event);
    return event;
  }
  // What the head holds, and lets it go. Fillers are gone by, as by who resolves.
  uint64_t Take() {
    for (QueuedEvent* head = ring_.Head(); head != nullptr; head = ring_.Head()) {
      const bool filler = head->kind == EventKind::kNothing;
      const uint64_t number = head->number;
      ring_.Release(head);
      if (!filler) return number;
    }
    return 0;
  }

  EventRing ring_;
};

TEST_F(EventRingTest, GivesEventsBackInTheirOrderWithNumbersFromOne) {
  EXPECT_EQ(ring_.next_event(), 1u);
  ASSERT_NE(Add(512), nullptr);
  ASSERT_NE(Add(1024), nullptr);
  EXPECT_EQ(ring_.next_event(), 3u);
  EXPECT_EQ(Take(), 1u);
  EXPECT_EQ(ring_.clock().told.load(), 1u);
  EXPECT_EQ(Take(), 2u);
  EXPECT_TRUE(ring_.IsEmpty());
  EXPECT_EQ(Take(), 0u);
}

TEST_F(EventRingTest, HoldsBackWhatStandsBehindAnEventThatIsNotPublished) {
  auto* first = ring_.Reserve<SnapshotEvent>();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(Add(512), nullptr);
  EXPECT_EQ(ring_.Head(), nullptr);
  EXPECT_FALSE(ring_.IsEmpty());
  ring_.Publish(first);
  EXPECT_EQ(ring_.Head(), first);
}

TEST_F(EventRingTest, RefusesWhatDoesNotFitAndTakesItOnceThereIsRoom) {
  ASSERT_NE(Add(2048), nullptr);
  ASSERT_NE(Add(1024), nullptr);
  EXPECT_EQ(Add(2048), nullptr);
  EXPECT_EQ(ring_.next_event(), 3u) << "what was refused has no number";
  EXPECT_EQ(Take(), 1u);
  EXPECT_NE(Add(2048), nullptr) << "behind a filler, at the beginning";
  EXPECT_EQ(Take(), 2u);
  EXPECT_EQ(Take(), 3u);
}

TEST_F(EventRingTest, LaysNoEventAcrossItsEnd) {
  // A filler of each size that the alignment allows.
  for (uint64_t turn = 0; turn < kBytes / kEventAlignment; ++turn) {
    auto* event = Add(kEventAlignment * 21);
    ASSERT_NE(event, nullptr);
    const auto* begin = reinterpret_cast<unsigned char*>(event);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % kEventAlignment, 0u);
    // The queue begins and ends at multiples of its size on a page.
    const uint64_t place = reinterpret_cast<uintptr_t>(begin) % kBytes;
    EXPECT_LE(place + event->bytes, kBytes);
    EXPECT_EQ(Take(), turn + 1);
  }
}

TEST_F(EventRingTest, SaysOnceThatItWasMoreThanHalfFull) {
  ASSERT_NE(Add(2048), nullptr);
  EXPECT_FALSE(ring_.TakePressure());
  ASSERT_NE(Add(512), nullptr);
  EXPECT_TRUE(ring_.TakePressure());
  EXPECT_FALSE(ring_.TakePressure());
  EXPECT_EQ(Add(2048), nullptr);
  EXPECT_TRUE(ring_.TakePressure()) << "what is refused presses, too";
}

TEST_F(EventRingTest, CountsAFillerAsNoEvent) {
  ASSERT_NE(Add(3072), nullptr);
  EXPECT_EQ(Take(), 1u);
  ASSERT_NE(Add(2048), nullptr);
  QueuedEvent* filler = ring_.Head();
  ASSERT_NE(filler, nullptr);
  EXPECT_EQ(filler->kind, EventKind::kNothing);
  ring_.Release(filler);
  EXPECT_EQ(ring_.clock().told.load(), 1u);
  EXPECT_EQ(Take(), 2u);
}

}  // namespace
}  // namespace nanwatch
