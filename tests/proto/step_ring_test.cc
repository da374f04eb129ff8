// SPDX-License-Identifier: Apache-2.0
#include "proto/wire/step_ring.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/proto/shared_ring.h"

namespace nanwatch::wire {
namespace {

class StepRing : public testing::Test {
 protected:
  static constexpr uint64_t kSteps = 10;
  StepRingHeader* header() { return memory_.as<StepRingHeader>(); }
  StepEntry* entries() { return reinterpret_cast<StepEntry*>(header() + 1); }
  StepReader Reader(uint64_t cursor = 0) {
    return *StepReader::Open(header(), memory_.bytes(), cursor);
  }
  // Every field follows from `number`.
  void Publish(uint64_t number) {
    StepEntry entry{};
    entry.time_ns = number;
    entry.clocks.optimizer_ranges = static_cast<uint32_t>(number);
    entry.loss = static_cast<double>(number);
    entry.ops_seen = entry.tensors_checked = entry.bytes_checked = entry.values_bad = number;
    entry.flags = entry.optimizer = static_cast<uint32_t>(number);
    writer_.Publish(entry);
  }
  static bool IsWhole(const StepEntry& entry) {
    const uint64_t number = entry.time_ns;
    return entry.clocks.optimizer_ranges == static_cast<uint32_t>(number) &&
           entry.loss == static_cast<double>(number) && entry.ops_seen == number &&
           entry.tensors_checked == number && entry.bytes_checked == number &&
           entry.values_bad == number && entry.optimizer == static_cast<uint32_t>(number);
  }

  SharedMemory memory_{StepRingBytes<StepEntry>(kSteps)};
  StepWriter writer_{header(), kSteps};
};

TEST_F(StepRing, GivesEveryStepBackInOrder) {
  StepReader reader = Reader();
  StepEntry entry{};
  EXPECT_FALSE(reader.Read(entry));
  for (uint64_t step = 0; step < 25; ++step) {
    Publish(step);
    ASSERT_TRUE(reader.Read(entry));
    EXPECT_EQ(entry.time_ns, step);
    EXPECT_TRUE(IsWhole(entry));
    EXPECT_FALSE(reader.Read(entry));
  }
  EXPECT_EQ(reader.lost(), 0u);
  EXPECT_EQ(reader.cursor(), 25u);
}

TEST_F(StepRing, KeepsTheNewestAndTheReaderCountsWhatItMissed) {
  for (uint64_t step = 0; step < 37; ++step) Publish(step);
  StepReader reader = Reader(4);
  StepEntry entry{};
  for (uint64_t step = 27; step < 37; ++step) {
    ASSERT_TRUE(reader.Read(entry));
    EXPECT_EQ(entry.time_ns, step);
  }
  EXPECT_FALSE(reader.Read(entry));
  EXPECT_EQ(reader.lost(), 23u);
}

TEST_F(StepRing, CountsAnEntryThatIsBeingOverwrittenAsLost) {
  for (uint64_t step = 0; step < 3; ++step) Publish(step);
  entries()[1].sequence = 2 * 11 + 1;  // a lap later, unfinished
  StepReader reader = Reader();
  StepEntry entry{};
  ASSERT_TRUE(reader.Read(entry));
  EXPECT_EQ(entry.time_ns, 0u);
  ASSERT_TRUE(reader.Read(entry));
  EXPECT_EQ(entry.time_ns, 2u);
  EXPECT_EQ(reader.lost(), 1u);
}

TEST_F(StepRing, EndsWhateverTheHeaderClaims) {
  Publish(0);
  StepReader reader = Reader();
  StepEntry entry{};
  header()->written = ~0ull;
  EXPECT_FALSE(reader.Read(entry));
  header()->written = 1;
  EXPECT_FALSE(reader.Read(entry));
  header()->capacity = kSteps + 1;
  EXPECT_FALSE(StepReader::Open(header(), memory_.bytes()).has_value());
  header()->capacity = 0;
  EXPECT_FALSE(StepReader::Open(header(), memory_.bytes()).has_value());
}

TEST_F(StepRing, NeverGivesAMixtureOfTwoStepsToAReaderThatIsLapped) {
  constexpr uint64_t kPublished = 200'000;
  std::thread publisher([this] {
    for (uint64_t step = 0; step < kPublished; ++step) Publish(step);
  });
  StepReader reader = Reader();
  StepEntry entry{};
  uint64_t read = 0;
  while (reader.cursor() < kPublished) {
    if (!reader.Read(entry)) continue;
    ++read;
    ASSERT_TRUE(IsWhole(entry)) << entry.time_ns;
    ASSERT_EQ(entry.time_ns, reader.cursor() - 1);
  }
  publisher.join();
  EXPECT_EQ(read + reader.lost(), kPublished);
}

}  // namespace
}  // namespace nanwatch::wire
