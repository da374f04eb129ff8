// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/read_sites.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

namespace nanwatch {
namespace {

class ReadSitesTest : public testing::Test {
 protected:
  uint32_t Count(uint32_t read_at, uint32_t made_at) { return sites_->Count(read_at, made_at); }

  std::unique_ptr<ReadSites> sites_ = std::make_unique<ReadSites>();
};

TEST_F(ReadSitesTest, CountsEachPairForItself) {
  EXPECT_EQ(Count(1, 2), 1u);
  EXPECT_EQ(Count(1, 2), 2u);
  EXPECT_EQ(Count(1, 3), 1u);
  EXPECT_EQ(Count(2, 2), 1u);
  EXPECT_EQ(Count(1, 2), 3u);
}

TEST_F(ReadSitesTest, WhereItWasReadAndWhereItWasMadeAreNotInterchangeable) {
  EXPECT_EQ(Count(1, 2), 1u);
  EXPECT_EQ(Count(2, 1), 1u);
}

TEST_F(ReadSitesTest, APlaceThatIsNotKnownIsAPlaceToo) {
  EXPECT_EQ(Count(0, 0), 1u);
  EXPECT_EQ(Count(0, 0), 2u);
  EXPECT_EQ(Count(0, 1), 1u);
  EXPECT_EQ(Count(1, 0), 1u);
  for (uint32_t made_at = 2; made_at < 3000; ++made_at) {
    const uint32_t count = Count(0, made_at);
    ASSERT_TRUE(count == 1 || count == ReadSites::kMany) << "it has taken somebody's place";
  }
  EXPECT_EQ(Count(0, 0), 3u);
}

TEST_F(ReadSitesTest, HalfATableFullHasRoomForEveryPair) {
  uint32_t random = 1;
  const auto draw = [&random] { return (random = random * 1664525u + 1013904223u) >> 12; };
  for (int i = 0; i < 512; ++i) {
    const uint32_t read_at = draw();
    ASSERT_EQ(Count(read_at, draw()), 1u) << i;
  }
}

TEST_F(ReadSitesTest, WhereThereIsNoRoomItSaysSoAndKnownPairsGoOn) {
  std::vector<uint32_t> known;
  uint32_t turned_away = 0;
  for (uint32_t made_at = 0; made_at < 3000; ++made_at) {
    const uint32_t count = Count(7, made_at);
    if (count == ReadSites::kMany) {
      ++turned_away;
    } else {
      ASSERT_EQ(count, 1u) << made_at;
      known.push_back(made_at);
    }
  }
  EXPECT_GT(turned_away, 1900u);
  EXPECT_GT(known.size(), 900u) << "most of the table can be used";
  for (const uint32_t made_at : known) ASSERT_EQ(Count(7, made_at), 2u) << made_at;
}

TEST_F(ReadSitesTest, OfThreadsThatReadTheSameEachIsGivenANumberOfItsOwn) {
  constexpr uint32_t kReads = 5'000;
  std::vector<uint32_t> seen[2];
  std::vector<std::thread> threads;
  for (auto& own : seen) {
    threads.emplace_back([&own, this] {
      for (uint32_t i = 0; i < kReads; ++i) own.push_back(Count(3, 4));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<uint32_t> all = seen[0];
  all.insert(all.end(), seen[1].begin(), seen[1].end());
  std::sort(all.begin(), all.end());
  for (uint32_t i = 0; i < 2 * kReads; ++i) ASSERT_EQ(all[i], i + 1);
}

// Both meet the same new pairs at the same time: none of them may be entered twice.
TEST_F(ReadSitesTest, ThreadsThatMeetANewPairTogetherShareItsCount) {
  for (int round = 0; round < 40; ++round) {
    sites_ = std::make_unique<ReadSites>();
    std::atomic<int> ready{0};
    const auto read = [this, &ready] {
      ++ready;
      while (ready < 2) std::this_thread::yield();
      for (uint32_t made_at = 0; made_at < 20; ++made_at) (void)Count(9, made_at);
    };
    std::thread other(read);
    read();
    other.join();
    for (uint32_t made_at = 0; made_at < 20; ++made_at) ASSERT_EQ(Count(9, made_at), 3u);
  }
}

}  // namespace
}  // namespace nanwatch
