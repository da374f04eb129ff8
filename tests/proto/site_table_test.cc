// SPDX-License-Identifier: Apache-2.0
#include "proto/wire/site_table.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/proto/shared_ring.h"

namespace nanwatch::wire {
namespace {

Clocks ClocksAfter(uint32_t passes) {
  Clocks clocks{};
  clocks.passes = passes;
  return clocks;
}

class SiteTable : public testing::Test {
 protected:
  static constexpr uint32_t kSites = 50;
  SiteTableHeader* header() { return memory_.as<SiteTableHeader>(); }
  SiteEntry* entries() { return reinterpret_cast<SiteEntry*>(header() + 1); }
  SiteReader Reader() { return *SiteReader::Open(header(), memory_.bytes()); }
  uint32_t Intern(const SiteKey& key, bool* is_new = nullptr) {
    bool ignored = false;
    return writer_.Intern(
        key, [] { return 99u; }, is_new != nullptr ? is_new : &ignored);
  }

  SharedMemory memory_{SiteTableBytes(kSites)};
  SiteWriter writer_{header(), kSites};
};

const SiteKey kSite{.op = 1,
                    .layer = 2,
                    .layer_type = 3,
                    .root = 4,
                    .node = 5,
                    .flags = ValueRecord::kInPlace,
                    .param = 6,
                    .phase = Phase::kBackward,
                    .finding_class = FindingClass::kInfToNan,
                    .kinds = kHasNan,
                    .outputs = 1};

TEST_F(SiteTable, GivesTheWholePlaceBack) {
  bool is_new = false;
  const uint32_t id = Intern(kSite, &is_new);
  EXPECT_TRUE(is_new);
  const std::optional<Site> site = Reader().Get(id);
  ASSERT_TRUE(site.has_value());
  EXPECT_EQ(site->key, kSite);
  EXPECT_EQ(site->source, 99u);
  EXPECT_EQ(site->count, 0u);
  EXPECT_EQ(site->first_ticket, 0u);
}

TEST_F(SiteTable, TellsPlacesApartByEveryPartOfTheKeyButTheLayersType) {
  std::vector<SiteKey> keys(11, kSite);
  keys[1].op = 9;
  keys[2].layer = 9;
  keys[3].root = 9;
  keys[4].node = 9;
  keys[5].flags = 9;
  keys[6].param = 9;
  keys[7].phase = Phase::kForward;
  keys[8].finding_class = FindingClass::kProduce;
  keys[9].kinds = 7;
  keys[10].outputs = 2;
  for (uint32_t i = 0; i < keys.size(); ++i) EXPECT_EQ(Intern(keys[i]), i + 1);
  for (uint32_t i = 0; i < keys.size(); ++i) EXPECT_EQ(Intern(keys[i]), i + 1);
  SiteKey other_type = kSite;
  other_type.layer_type = 9;
  bool is_new = true;
  EXPECT_EQ(Intern(other_type, &is_new), 1u);
  EXPECT_FALSE(is_new);
}

TEST_F(SiteTable, AsksForTheSourceLineOnlyOnce) {
  int asked = 0;
  bool is_new = false;
  const auto source = [&asked] {
    ++asked;
    return 7u;
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(writer_.Intern(kSite, source, &is_new), 1u);
  EXPECT_EQ(asked, 1);
}

TEST_F(SiteTable, WhenFullKnowsItsPlacesAndAsksForNoSourceOfOthers) {
  for (uint32_t i = 0; i < kSites; ++i) ASSERT_EQ(Intern({.op = i + 1}), i + 1);
  int asked = 0;
  bool is_new = true;
  EXPECT_EQ(writer_.Intern(
                {.op = 1000}, [&] { return static_cast<uint32_t>(++asked); }, &is_new),
            0u);
  EXPECT_FALSE(is_new);
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(Intern({.op = 17}), 17u);
  EXPECT_EQ(Reader().Count(), kSites);
}

TEST_F(SiteTable, CountsAndRemembersTheFirstAndTheLastTime) {
  const uint32_t id = Intern(kSite);
  const Clocks first = ClocksAfter(3);
  const Clocks last = ClocksAfter(8);
  EXPECT_EQ(writer_.Count(id, 40, first), 1u);
  EXPECT_EQ(writer_.Count(id, 50, first), 2u);
  EXPECT_EQ(writer_.Count(id, 60, last), 3u);
  const std::optional<Site> site = Reader().Get(id);
  EXPECT_EQ(site->count, 3u);
  EXPECT_EQ(site->first_ticket, 40u);
  EXPECT_EQ(site->last_ticket, 60u);
  EXPECT_EQ(site->first_clocks.passes, 3u);
  EXPECT_EQ(site->last_clocks.passes, 8u);
  EXPECT_EQ(writer_.Count(0, 70, last), 0u);
  EXPECT_EQ(writer_.Count(kSites + 1, 70, last), 0u);
}

TEST_F(SiteTable, HasNoEntryForUnfinishedOnesAndUnknownNumbers) {
  const uint32_t id = Intern(kSite);
  EXPECT_TRUE(Reader().Get(id).has_value());
  entries()[id - 1].state = kEntryBeingWritten;
  EXPECT_FALSE(Reader().Get(id).has_value());
  for (const uint32_t unknown : {0u, 2u, kSites, kSites + 1, ~0u}) {
    EXPECT_FALSE(Reader().Get(unknown).has_value()) << unknown;
  }
}

TEST_F(SiteTable, IsNotOpenedWhenItsHeaderDoesNotFitTheSection) {
  EXPECT_FALSE(SiteReader::Open(header(), memory_.bytes() - 1).has_value());
  EXPECT_FALSE(SiteReader::Open(header(), sizeof(SiteTableHeader) - 1).has_value());
  header()->capacity = ~0u;
  EXPECT_FALSE(SiteReader::Open(header(), memory_.bytes()).has_value());
  header()->capacity = kSites;
  header()->used = ~0u;
  EXPECT_EQ(Reader().Count(), kSites);
}

TEST_F(SiteTable, ThreadsThatMeetTheSamePlaceMakeOneEntryAndLoseNoCount) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 1000;
  std::atomic<int> made{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (uint32_t i = 0; i < kRounds; ++i) {
        bool is_new = false;
        const uint32_t id = writer_.Intern(
            {.op = i % 20 + 1}, [] { return 1u; }, &is_new);
        made += is_new ? 1 : 0;
        writer_.Count(id, i + 1, {});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made.load(), 20);
  EXPECT_EQ(Reader().Count(), 20u);
  for (uint32_t id = 1; id <= 20; ++id) EXPECT_EQ(Reader().Get(id)->count, kThreads * kRounds / 20);
}

}  // namespace
}  // namespace nanwatch::wire
