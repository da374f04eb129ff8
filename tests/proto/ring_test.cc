// SPDX-License-Identifier: Apache-2.0
#include "proto/wire/ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/proto/shared_ring.h"

namespace nanwatch::wire {
namespace {

constexpr size_t kOneByOne = sizeof(RecordHeader);  // two slots

RingRead ReadNext(RingReader& reader, RecordCopy& copy) { return reader.Read(copy, Holes::kWait); }

TEST(Ring, GivesBackRecordsOfEverySizeAsTheyWereWritten) {
  SharedRing ring(64);
  RingReader reader = ring.Reader();
  RecordCopy copy;
  uint64_t ticket = 0;
  for (size_t bytes = sizeof(RecordHeader); bytes <= kRecordBytesMax; bytes += 8) {
    ASSERT_TRUE(WriteRecord(ring.writer(), 7, ++ticket, bytes)) << bytes;
    ASSERT_EQ(ReadNext(reader, copy), RingRead::kRecord) << bytes;
    EXPECT_EQ(copy.header().bytes, bytes);
    EXPECT_EQ(copy.header().ticket, ticket);
    ASSERT_TRUE(IsWhole(copy)) << bytes;
    ReleaseSlots(*ring.header(), reader.cursor());
  }
  EXPECT_GT(ring.header()->reserved_slots.load(), 64u) << "the ring was never lapped";
}

TEST(Ring, CopiesARecordWhoseLengthIsNoMultipleOfAWord) {
  SharedRing ring(64);
  std::vector<uint64_t> record = MakeRecord(1, 1, 128);
  reinterpret_cast<RecordHeader*>(record.data())->bytes = 123;
  ASSERT_TRUE(ring.writer().Write(record.data(), 123));
  RingReader reader = ring.Reader();
  RecordCopy copy;
  ASSERT_EQ(ReadNext(reader, copy), RingRead::kRecord);
  EXPECT_EQ(std::memcmp(copy.bytes, record.data(), 123), 0);
}

TEST(Ring, KeepsTheOldestWhenFullAndCountsEachDroppedRecord) {
  SharedRing ring(16);
  for (uint64_t ticket = 1; ticket <= 8; ++ticket) {
    ASSERT_TRUE(WriteRecord(ring.writer(), 0, ticket, kOneByOne));
  }
  for (uint64_t ticket = 9; ticket <= 13; ++ticket) {
    EXPECT_FALSE(WriteRecord(ring.writer(), 0, ticket, kOneByOne));
  }
  RingReader reader = ring.Reader();
  EXPECT_EQ(reader.Dropped(), 5u);
  RecordCopy copy;
  for (uint64_t ticket = 1; ticket <= 8; ++ticket) {
    ASSERT_EQ(ReadNext(reader, copy), RingRead::kRecord);
    EXPECT_EQ(copy.header().ticket, ticket);
    EXPECT_TRUE(IsWhole(copy));
  }
  EXPECT_EQ(ReadNext(reader, copy), RingRead::kEmpty);
}

TEST(Ring, DropsARecordThatIsLargerThanTheRoomLeftButTakesASmallerOne) {
  SharedRing ring(16);
  ASSERT_TRUE(WriteRecord(ring.writer(), 0, 1, 12 * kSlotPayloadBytes));
  EXPECT_FALSE(WriteRecord(ring.writer(), 0, 2, 5 * kSlotPayloadBytes));
  EXPECT_TRUE(WriteRecord(ring.writer(), 0, 3, 4 * kSlotPayloadBytes));
  EXPECT_EQ(ring.header()->records_dropped.load(), 1u);
}

TEST(Ring, WritesIntoReleasedSlotsOnly) {
  SharedRing ring(16);
  for (uint64_t ticket = 1; ticket <= 8; ++ticket) {
    ASSERT_TRUE(WriteRecord(ring.writer(), 0, ticket, kOneByOne));
  }
  RingReader reader = ring.Reader();
  RecordCopy copy;
  ASSERT_EQ(ReadNext(reader, copy), RingRead::kRecord);
  EXPECT_FALSE(WriteRecord(ring.writer(), 0, 9, kOneByOne)) << "read, but not released";
  ReleaseSlots(*ring.header(), reader.cursor());
  EXPECT_TRUE(WriteRecord(ring.writer(), 0, 9, kOneByOne));
  EXPECT_FALSE(WriteRecord(ring.writer(), 0, 10, kOneByOne));
}

TEST(Ring, RefusesRecordsThatAreEmptyOrTooLongAndCountsThem) {
  SharedRing ring(64);
  const std::vector<uint64_t> record(kRecordBytesMax / 8 + 16);
  EXPECT_FALSE(ring.writer().Write(record.data(), 0));
  EXPECT_FALSE(ring.writer().Write(record.data(), kRecordSlotsMax * kSlotPayloadBytes + 1));
  EXPECT_EQ(ring.header()->records_dropped.load(), 2u);
  EXPECT_EQ(ring.header()->reserved_slots.load(), 0u);
}

TEST(Ring, ReleaseGoesNeitherBackwardsNorBeyondWhatIsReserved) {
  SharedRing ring(16);
  ASSERT_TRUE(WriteRecord(ring.writer(), 0, 1, kOneByOne));
  ASSERT_TRUE(WriteRecord(ring.writer(), 0, 2, kOneByOne));
  ReleaseSlots(*ring.header(), 5);
  EXPECT_EQ(ring.header()->released_slots.load(), 0u);
  ReleaseSlots(*ring.header(), 4);
  EXPECT_EQ(ring.header()->released_slots.load(), 4u);
  ReleaseSlots(*ring.header(), 2);
  EXPECT_EQ(ring.header()->released_slots.load(), 4u);
}

TEST(Ring, WaitsBeforeAnUnfinishedRecordWhileTheWriterLivesAndPassesItOnceItIsDead) {
  SharedRing ring(32);
  ASSERT_TRUE(WriteRecord(ring.writer(), 0, 1, kOneByOne));
  ring.header()->reserved_slots.fetch_add(3);  // a writer that got no further
  ASSERT_TRUE(WriteRecord(ring.writer(), 0, 2, kOneByOne));
  ring.header()->reserved_slots.fetch_add(5);

  RingReader reader = ring.Reader();
  RecordCopy copy;
  ASSERT_EQ(ReadNext(reader, copy), RingRead::kRecord);
  EXPECT_EQ(ReadNext(reader, copy), RingRead::kPending);
  EXPECT_EQ(ReadNext(reader, copy), RingRead::kPending);
  EXPECT_EQ(reader.cursor(), 2u);

  ASSERT_EQ(reader.Read(copy, Holes::kSkip), RingRead::kRecord);
  EXPECT_EQ(copy.header().ticket, 2u);
  EXPECT_EQ(reader.hole_slots(), 3u);
  EXPECT_EQ(reader.Read(copy, Holes::kSkip), RingRead::kEmpty);
  EXPECT_EQ(reader.hole_slots(), 8u);
  EXPECT_EQ(reader.cursor(), 12u);
}

TEST(Ring, DoesNotTakeASlotOfTheLapBeforeForANewRecord) {
  SharedRing ring(16);
  RingReader reader = ring.Reader();
  RecordCopy copy;
  for (uint64_t ticket = 1; ticket <= 8; ++ticket) {
    ASSERT_TRUE(WriteRecord(ring.writer(), 0, ticket, kOneByOne));
    ASSERT_EQ(ReadNext(reader, copy), RingRead::kRecord);
  }
  ReleaseSlots(*ring.header(), reader.cursor());
  ring.header()->reserved_slots.fetch_add(16);  // all reserved again, nothing written
  EXPECT_EQ(ReadNext(reader, copy), RingRead::kPending);
  EXPECT_EQ(reader.Read(copy, Holes::kSkip), RingRead::kEmpty);
  EXPECT_EQ(reader.hole_slots(), 16u);
}

TEST(Ring, DoesNotTakeAnOldHeadInTheMiddleOfANewRecordForARecord) {
  SharedRing ring(16);
  RingReader reader = ring.Reader();
  RecordCopy copy;
  for (uint64_t ticket = 1; ticket <= 8; ++ticket) {  // heads at every second slot
    ASSERT_TRUE(WriteRecord(ring.writer(), 0, ticket, kOneByOne));
    ASSERT_EQ(ReadNext(reader, copy), RingRead::kRecord);
  }
  ReleaseSlots(*ring.header(), reader.cursor());
  ASSERT_TRUE(WriteRecord(ring.writer(), 0, 9, 6 * kSlotPayloadBytes / 8 * 8));
  ASSERT_EQ(ReadNext(reader, copy), RingRead::kRecord);
  EXPECT_TRUE(IsWhole(copy));
  EXPECT_EQ(ReadNext(reader, copy), RingRead::kEmpty);
}

TEST(Ring, StartsWhereTheStoredCursorStandsEvenIfThatWasNeverReleased) {
  SharedRing ring(16);
  ASSERT_TRUE(WriteRecord(ring.writer(), 0, 1, kOneByOne));
  ASSERT_TRUE(WriteRecord(ring.writer(), 0, 2, kOneByOne));
  RingReader reader = ring.Reader(2);
  RecordCopy copy;
  ASSERT_EQ(ReadNext(reader, copy), RingRead::kRecord);
  EXPECT_EQ(copy.header().ticket, 2u);
}

TEST(Ring, AReaderThatOnlyLooksGoesOnWhereTheConsumerReleased) {
  SharedRing ring(16);
  RingReader consumer = ring.Reader();
  RingReader onlooker = ring.Reader();
  RecordCopy copy;
  ASSERT_TRUE(WriteRecord(ring.writer(), 0, 1, kOneByOne));
  ASSERT_TRUE(WriteRecord(ring.writer(), 0, 2, kOneByOne));
  ASSERT_EQ(ReadNext(consumer, copy), RingRead::kRecord);
  ReleaseSlots(*ring.header(), consumer.cursor());
  ASSERT_EQ(ReadNext(onlooker, copy), RingRead::kRecord);
  EXPECT_EQ(copy.header().ticket, 2u);
  EXPECT_EQ(onlooker.passed_slots(), 2u);
}

TEST(Ring, ReadsFromAMappingWithoutWritePermission) {
  SharedRing ring(64);
  ASSERT_TRUE(WriteRecord(ring.writer(), 3, 1, 200));
  ASSERT_EQ(mprotect(ring.header(), ring.bytes(), PROT_READ), 0);
  RingReader reader = ring.Reader();
  RecordCopy copy;
  EXPECT_EQ(ReadNext(reader, copy), RingRead::kRecord);
  EXPECT_TRUE(IsWhole(copy));
}

TEST(Ring, IsNotOpenedWhenItsHeaderCannotBeTrue) {
  SharedRing ring(64);
  EXPECT_TRUE(RingReader::Open(ring.header(), ring.bytes()).has_value());
  EXPECT_FALSE(RingReader::Open(ring.header(), ring.bytes() - 1).has_value());
  EXPECT_FALSE(RingReader::Open(ring.header(), 0).has_value());
  EXPECT_FALSE(RingReader::Open(ring.header(), sizeof(RingHeader)).has_value());
  for (const uint64_t capacity : {0ull, 63ull, 128ull, 1ull << 63, ~0ull}) {
    ring.header()->capacity = capacity;
    EXPECT_FALSE(RingReader::Open(ring.header(), ring.bytes()).has_value()) << capacity;
  }
}

// What follows: content that our writer never makes. Each must cost the reader nothing but that
// record.

class MalformedRing : public testing::Test {
 protected:
  MalformedRing() {
    for (uint64_t ticket = 1; ticket <= 3; ++ticket) {
      EXPECT_TRUE(WriteRecord(ring_.writer(), 0, ticket, 3 * kSlotPayloadBytes));
    }
  }
  RecordHeader* Header(uint64_t slot) {
    return reinterpret_cast<RecordHeader*>(ring_.slots()[slot].payload);
  }
  void ExpectOnlyTheFirstIsLost() {
    RingReader reader = ring_.Reader();
    RecordCopy copy;
    EXPECT_EQ(ReadNext(reader, copy), RingRead::kMalformed);
    for (uint64_t ticket = 2; ticket <= 3; ++ticket) {
      ASSERT_EQ(ReadNext(reader, copy), RingRead::kRecord);
      EXPECT_EQ(copy.header().ticket, ticket);
      EXPECT_TRUE(IsWhole(copy));
    }
    EXPECT_EQ(ReadNext(reader, copy), RingRead::kEmpty);
    EXPECT_EQ(reader.malformed(), 1u);
  }
  SharedRing ring_{64};
};

TEST_F(MalformedRing, LosesOnlyARecordOfNoLength) {
  Header(0)->bytes = 0;
  ExpectOnlyTheFirstIsLost();
}

TEST_F(MalformedRing, LosesOnlyARecordShorterThanItsHeader) {
  Header(0)->bytes = sizeof(RecordHeader) - 1;
  ExpectOnlyTheFirstIsLost();
}

TEST_F(MalformedRing, LosesOnlyARecordLongerThanAnyRecord) {
  Header(0)->bytes = kRecordBytesMax + 1;
  ExpectOnlyTheFirstIsLost();
}

TEST_F(MalformedRing, LosesOnlyARecordThatReachesIntoTheNext) {
  Header(0)->bytes = 3 * kSlotPayloadBytes + 1;
  ExpectOnlyTheFirstIsLost();
}

TEST_F(MalformedRing, LosesOnlyARecordOfAnUnknownKind) {
  Header(0)->kind = kRecordKindMax + 1;
  ExpectOnlyTheFirstIsLost();
}

TEST_F(MalformedRing, LosesOnlyARecordOfNoKind) {
  Header(0)->kind = 0;
  ExpectOnlyTheFirstIsLost();
}

TEST_F(MalformedRing, LosesOnlyARecordThatReachesBeyondWhatIsReserved) {
  Header(6)->bytes = 4 * kSlotPayloadBytes;
  RingReader reader = ring_.Reader();
  RecordCopy copy;
  EXPECT_EQ(ReadNext(reader, copy), RingRead::kRecord);
  EXPECT_EQ(ReadNext(reader, copy), RingRead::kRecord);
  EXPECT_EQ(ReadNext(reader, copy), RingRead::kMalformed);
  EXPECT_EQ(ReadNext(reader, copy), RingRead::kEmpty);
  EXPECT_EQ(reader.cursor(), 9u);
}

TEST_F(MalformedRing, GoesOnWhenReservedJumpsAheadAndStopsWhenItFallsBack) {
  RingReader reader = ring_.Reader();
  RecordCopy copy;
  ring_.header()->reserved_slots = ~0ull;
  EXPECT_EQ(ReadNext(reader, copy), RingRead::kMalformed);
  EXPECT_EQ(reader.cursor(), ~0ull - 64);
  ring_.header()->reserved_slots = 9;
  EXPECT_EQ(ReadNext(reader, copy), RingRead::kEmpty);
  EXPECT_EQ(reader.Read(copy, Holes::kSkip), RingRead::kEmpty);
  ReleaseSlots(*ring_.header(), reader.cursor());
  EXPECT_EQ(ring_.header()->released_slots.load(), 0u);
}

TEST_F(MalformedRing, AWriterTakesNonsenseInReleasedForAFullRing) {
  ring_.header()->released_slots = 1'000'000;
  EXPECT_FALSE(WriteRecord(ring_.writer(), 0, 4, kOneByOne));
  ring_.header()->released_slots = 0;
  EXPECT_TRUE(WriteRecord(ring_.writer(), 0, 4, kOneByOne));
}

TEST(Ring, PassesTheRecordsOfManyThreadsOnExactlyOnceAndInEachThreadsOrder) {
  constexpr uint32_t kThreads = 4;
  constexpr uint64_t kRecords = 2'000;
  SharedRing ring(1024);
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&ring, thread] {
      for (uint64_t ticket = 1; ticket <= kRecords;) {
        if (WriteRecord(ring.writer(), thread, ticket, SizeOf(ticket * 31 + thread))) {
          ++ticket;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  RingReader reader = ring.Reader();
  RecordCopy copy;
  uint64_t last[kThreads] = {};
  for (uint64_t seen = 0; seen < kThreads * kRecords;) {
    if (reader.Read(copy, Holes::kWait) != RingRead::kRecord) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_TRUE(IsWhole(copy));
    ASSERT_LT(copy.header().thread, kThreads);
    ASSERT_EQ(copy.header().ticket, ++last[copy.header().thread]);
    ReleaseSlots(*ring.header(), reader.cursor());
    ++seen;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ReadNext(reader, copy), RingRead::kEmpty);
  EXPECT_EQ(reader.malformed() + reader.hole_slots() + reader.passed_slots(), 0u);
}

}  // namespace
}  // namespace nanwatch::wire
