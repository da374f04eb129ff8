// SPDX-License-Identifier: Apache-2.0
#include "proto/wire/stats_ring.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/proto/shared_ring.h"

namespace nanwatch::wire {
namespace {

class StatsRing : public testing::Test {
 protected:
  static constexpr uint64_t kEntries = 32;  // so a snapshot has at most 7 parameters
  StepRingHeader* header() { return memory_.as<StepRingHeader>(); }
  StatsEntry& entry(uint64_t i) { return reinterpret_cast<StatsEntry*>(header() + 1)[i]; }
  StatsReader Reader(uint64_t cursor = 0) {
    return *StatsReader::Open(header(), memory_.bytes(), cursor);
  }
  // Everything in it follows from its number.
  void Publish(uint32_t parameters) {
    StatsHead head{};
    head.clocks.optimizer_ranges = static_cast<uint32_t>(published_);
    head.interval = 100;
    std::vector<StatsParameter> all(parameters);
    for (uint32_t i = 0; i < parameters; ++i) {
      all[i].position = i;
      all[i].gradient_norm = static_cast<double>(published_ * 100 + i);
    }
    StatsLayer layer{};
    layer.largest = static_cast<double>(published_);
    writer_.Publish(head, all, {&layer, layers_}, 1000 + published_++);
  }
  static void ExpectWhole(const StatsCopy& copy, uint64_t number, size_t parameters) {
    EXPECT_EQ(copy.snapshot, number);
    EXPECT_EQ(copy.time_ns, 1000 + number);
    EXPECT_EQ(copy.head.clocks.optimizer_ranges, number);
    ASSERT_EQ(copy.parameters.size(), parameters);
    for (size_t i = 0; i < parameters; ++i) {
      EXPECT_EQ(copy.parameters[i].position, i);
      EXPECT_EQ(copy.parameters[i].gradient_norm, static_cast<double>(number * 100 + i));
    }
  }

  SharedMemory memory_{StepRingBytes<StatsEntry>(kEntries)};
  StatsWriter writer_{header(), kEntries};
  uint64_t published_ = 0;
  size_t layers_ = 0;  // of each snapshot, 0 or 1
};

TEST_F(StatsRing, LayersComeWithTheirSnapshotAsFarAsThereIsRoom) {
  StatsReader reader = Reader();
  StatsCopy copy;
  layers_ = 1;
  Publish(2);
  Publish(writer_.parameters_max());
  ASSERT_TRUE(reader.Read(copy));
  ExpectWhole(copy, 0, 2);
  ASSERT_EQ(copy.layers.size(), 1u);
  EXPECT_EQ(copy.layers[0].largest, 0);
  ASSERT_TRUE(reader.Read(copy));
  ExpectWhole(copy, 1, writer_.parameters_max());
  EXPECT_TRUE(copy.layers.empty());
  EXPECT_EQ(reader.lost(), 0u);
}

TEST_F(StatsRing, GivesEverySnapshotBackWhole) {
  StatsReader reader = Reader();
  StatsCopy copy;
  EXPECT_FALSE(reader.Read(copy));
  for (uint32_t i = 0; i < 40; ++i) {
    Publish(i % 8);
    ASSERT_TRUE(reader.Read(copy));
    ExpectWhole(copy, i, i % 8);
    EXPECT_FALSE(reader.Read(copy));
  }
  EXPECT_EQ(reader.lost(), 0u);
}

TEST_F(StatsRing, GivesNoSnapshotOfWhichAPartWasOverwrittenAndCountsWhatWasLost) {
  for (int i = 0; i < 6; ++i) Publish(7);  // 48 entries: those from 16 on stand
  StatsReader reader = Reader();
  StatsCopy copy;
  for (uint64_t i = 2; i < 6; ++i) {
    ASSERT_TRUE(reader.Read(copy));
    ExpectWhole(copy, i, 7);
  }
  EXPECT_FALSE(reader.Read(copy));
  EXPECT_EQ(reader.lost(), 16u);
  Publish(3);
  Publish(7);
  Publish(7);
  Publish(7);
  Publish(7);  // 36 more: the four that still stand of the first one are of no use
  ASSERT_TRUE(reader.Read(copy));
  ExpectWhole(copy, 7, 7);
  EXPECT_EQ(reader.lost(), 20u);
}

TEST_F(StatsRing, WaitsForOneThatIsBeingWrittenAndGoesOnFromItsHead) {
  Publish(2);
  Publish(4);
  header()->written = 5;  // two of the second one's parameters are not there yet
  StatsReader reader = Reader();
  StatsCopy copy;
  ASSERT_TRUE(reader.Read(copy));
  EXPECT_FALSE(reader.Read(copy));
  EXPECT_EQ(reader.cursor(), 3u);
  header()->written = 8;
  ASSERT_TRUE(reader.Read(copy));
  ExpectWhole(copy, 1, 4);
  EXPECT_EQ(reader.lost(), 0u);
}

TEST_F(StatsRing, GoesOnFromACursor) {
  Publish(2);
  StatsReader first = Reader();
  StatsCopy copy;
  ASSERT_TRUE(first.Read(copy));
  Publish(1);
  StatsReader second = Reader(first.cursor());
  ASSERT_TRUE(second.Read(copy));
  ExpectWhole(copy, 1, 1);
}

TEST_F(StatsRing, PassesOverHeadsAndParametersThatCannotBe) {
  Publish(3);
  Publish(3);
  Publish(1);
  StatsHead lie{};
  lie.parameters = 0xffffffff;
  std::memcpy(entry(0).payload, &lie, sizeof lie);
  entry(5).snapshot = 77;  // another one's parameter
  StatsReader reader = Reader();
  StatsCopy copy;
  ASSERT_TRUE(reader.Read(copy));
  ExpectWhole(copy, 2, 1);
  EXPECT_EQ(reader.lost(), 8u);
}

TEST(StatsRingOfAnySize, ASnapshotLargerThanAnyWriterMakesIsNotTaken) {
  constexpr uint64_t kLarge = 8192;
  SharedMemory memory(StepRingBytes<StatsEntry>(kLarge));
  StepRingWriter<StatsEntry> ring(memory.as<StepRingHeader>(), kLarge);
  StatsHead head{};
  head.parameters = kStatsParametersReadMax + 1;
  StatsEntry entry{};
  entry.kind = StatsEntry::kHead;
  std::memcpy(entry.payload, &head, sizeof head);
  ring.Publish(entry);
  entry.kind = StatsEntry::kParameter;
  for (uint64_t i = 0; i < head.parameters; ++i) ring.Publish(entry);
  StatsReader reader = *StatsReader::Open(memory.as<StepRingHeader>(), memory.bytes());
  StatsCopy copy;
  EXPECT_FALSE(reader.Read(copy));
  EXPECT_EQ(reader.lost(), kStatsParametersReadMax + 2);
}

TEST_F(StatsRing, TakesNoMoreThanThereIsRoomFor) {
  EXPECT_EQ(writer_.parameters_max(), 7u);
  Publish(8);
  StatsReader reader = Reader();
  StatsCopy copy;
  EXPECT_FALSE(reader.Read(copy));
  EXPECT_EQ(StatsParametersMax(0), 0u);
  EXPECT_EQ(StatsParametersMax(4096), 1023u);
}

TEST_F(StatsRing, IsNotOpenedWhereItsSectionIsTooSmall) {
  EXPECT_FALSE(StatsReader::Open(header(), sizeof(StepRingHeader) - 1));
  EXPECT_FALSE(StatsReader::Open(header(), memory_.bytes() - 1));
}

}  // namespace
}  // namespace nanwatch::wire
