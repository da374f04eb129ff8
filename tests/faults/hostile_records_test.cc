// SPDX-License-Identifier: Apache-2.0
// Fault 15: records that are valid and make as much of themselves as they can. One segment costs
// bounded memory, and all others are read. (Records that make no sense: tests/fuzz.)
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "daemon/base/directories.h"
#include "proto/wire/naming.h"
#include "tests/faults/scene.h"

namespace nanwatch {
namespace {

constexpr SegmentLayout kFullSize{.ring_slots = 1 << 18,
                                  .steps = 1 << 15,
                                  .stats = 64,
                                  .sites = 128,
                                  .names = 256,
                                  .name_bytes = 16 * 1024};
constexpr uint64_t kMebi = 1 << 20;

class HostileRecordsTest : public FaultTest {
 protected:
  // Numbered from 1.
  [[nodiscard]] std::vector<std::unique_ptr<SegmentBuilder>> JobsOf(
      uint64_t count, const SegmentLayout& layout) const {
    std::vector<std::unique_ptr<SegmentBuilder>> jobs;
    for (uint64_t nonce = 1; nonce <= count; ++nonce) {
      jobs.push_back(std::make_unique<SegmentBuilder>(
          options_.segment_dir, SegmentBuilderOptions{.layout = layout, .nonce = nonce}));
    }
    return jobs;
  }
};

TEST_F(HostileRecordsTest, OfADeadJobTakeBoundedMemoryAndOthersAreRead) {
  SegmentBuilder hostile(options_.segment_dir, {.layout = kFullSize, .nonce = 1, .dead = true});
  FillWithLongNames(hostile, kFullSize);
  SegmentBuilder job(options_.segment_dir, {.nonce = 2});
  job.WriteValue("aten::log", "a");
  const int status = InChild([&] {
    rusage before{};
    getrusage(RUSAGE_SELF, &before);
    Start();
    for (int i = 0; i < 40 && daemon_->intake().open_segments() != 1; ++i) Tick();
    if (TicketsOf(2) != 1) _exit(2);
    if (daemon_->intake().open_segments() != 1) _exit(3);  // the hostile one is still there
    rusage after{};
    getrusage(RUSAGE_SELF, &after);
    const auto grown_kib = static_cast<uint64_t>(after.ru_maxrss - before.ru_maxrss);
    if (grown_kib > 256 * kMebi / 1024) _exit(5);
  });
  EXPECT_EQ(status, 0) << "exit status " << (status >> 8);
  Start();
  Tick();
  EXPECT_EQ(FactsOf(1).state().ended(), true);
  EXPECT_LE(FactsOf(1).records_size(), static_cast<int>(kRecordsPerRunMax));
  ExpectSoundStore();
}

// However few their rows are.
TEST_F(HostileRecordsTest, WhatIsCommittedTogetherIsBoundedInBytes) {
  constexpr SegmentLayout kLayout = SmallLayoutWithRing(1 << 11);
  const std::vector<std::unique_ptr<SegmentBuilder>> jobs = JobsOf(16, kLayout);
  for (const auto& job : jobs) FillWithLongNames(*job, kLayout);
  Start();
  uint64_t bytes = 0, largest = 0;
  bool is_first = true;
  daemon_->intake().set_after_commit([&](const std::string&) {
    if (!std::exchange(is_first, false)) return;
    for (uint64_t nonce = 1; nonce <= jobs.size(); ++nonce) {
      const Result<RunFacts> facts = daemon_->store().Facts(RunId(nonce));
      if (!facts.ok()) continue;
      bytes += facts->ByteSizeLong();
      largest = std::max<uint64_t>(largest, facts->ByteSizeLong());
    }
  });
  Tick();
  EXPECT_GT(bytes, largest) << "more than one run";
  EXPECT_LE(bytes, 2 * kMebi + largest) << "in the first commit";
  for (uint64_t nonce = 1; nonce <= jobs.size(); ++nonce) EXPECT_GT(TicketsOf(nonce), 0u);
}

TEST_F(HostileRecordsTest, AFileLargerThanAnySegmentIsNamedAndNotMapped) {
  constexpr SegmentLayout kTooLarge = SmallLayoutWithRing(1 << 19);
  const SegmentBuilder hostile(options_.segment_dir, {.layout = kTooLarge, .nonce = 1});
  Start();
  Tick();
  Tick(3'000);
  ASSERT_EQ(listener_.unreadable.size(), 1u) << "once";
  EXPECT_NE(listener_.unreadable[0].find("claims a size that no segment has"), std::string::npos);
  EXPECT_EQ(daemon_->intake().open_segments(), 0u);
}

// One that floods does not take the turns of those behind it.
TEST_F(HostileRecordsTest, EachSegmentHasItsTurn) {
  constexpr SegmentLayout kRing = SmallLayoutWithRing(1 << 17);
  const std::vector<std::unique_ptr<SegmentBuilder>> floods = JobsOf(3, kRing);
  SegmentBuilder last(options_.segment_dir, {.nonce = 0xffff});
  last.WriteValue("aten::log", "a");
  const auto fill = [](SegmentBuilder& job) {
    const uint64_t dropped = job.dropped();
    while (job.dropped() == dropped) job.WriteValue("aten::exp", "b");
  };
  Start();
  for (int i = 0; i < 4; ++i) {
    for (const auto& flood : floods) fill(*flood);
    Tick();
  }
  EXPECT_EQ(TicketsOf(0xffff), 1u);
}

// Whatever the reason: here the database refuses its rows.
TEST_F(HostileRecordsTest, OneThatCannotBeKeptIsPutAsideByNameAndOthersGoOn) {
  Start();
  Tick();
  RefuseRunOne();
  SegmentBuilder refused(options_.segment_dir, {.nonce = 1});
  refused.WriteValue("aten::log", "a");
  SegmentBuilder job(options_.segment_dir, {.nonce = 2});
  uint64_t written = 0;
  for (int i = 0; i < 30; ++i) {
    written = job.WriteValue("aten::exp", "b");
    Tick(1'100);
    ASSERT_EQ(TicketsOf(2), written) << "others are read at once";
  }
  ASSERT_EQ(listener_.unreadable.size(), 1u);
  EXPECT_NE(listener_.unreadable[0].find(refused.name() + ": put aside"), std::string::npos);
  EXPECT_NE(listener_.unreadable[0].find("refused"), std::string::npos);
  EXPECT_EQ(daemon_->intake().open_segments(), 1u);
  EXPECT_EQ(access(refused.path().c_str(), F_OK), 0) << "for whoever wants to know why";
  EXPECT_EQ(listener_.troubles.size(), 1u);
}

// Nothing is wrong with it: it is read once there is memory again, whenever that is.
TEST_F(HostileRecordsTest, OneThatThereIsNoMemoryForIsTriedAgainLessAndLessOften) {
  Start();
  int tries = 0;
  bool has_memory = false;
  daemon_->intake().set_after_commit([&](const std::string& run) {
    if (run != RunId(1) || has_memory) return;
    ++tries;
    throw std::bad_alloc();
  });
  SegmentBuilder large(options_.segment_dir, {.nonce = 1});
  large.WriteValue("aten::log", "a");
  SegmentBuilder job(options_.segment_dir, {.nonce = 2});
  for (int i = 0; i < 300; ++i) {
    const uint64_t written = job.WriteValue("aten::exp", "b");
    Tick(1'000);
    ASSERT_EQ(TicketsOf(2), written) << "others are read at once";
  }
  EXPECT_TRUE(listener_.unreadable.empty()) << listener_.unreadable.at(0);
  EXPECT_GT(tries, 8);
  EXPECT_LT(tries, 20) << "in five minutes";
  has_memory = true;
  for (int i = 0; i < 61; ++i) Tick(1'000);
  EXPECT_EQ(large.ring().released_slots.load(), large.ring().reserved_slots.load());
}

TEST_F(HostileRecordsTest, ANameThatSteersATerminalDoesNotReachTheLog) {
  const SegmentBuilder made(options_.segment_dir, {.nonce = 1});
  const std::string name = std::string(wire::kSegmentPrefix) + "\n\x1b[2Jx" + wire::kSegmentSuffix;
  ASSERT_EQ(rename(made.path().c_str(), (options_.segment_dir + "/" + name).c_str()), 0);
  Start();
  Tick();
  ASSERT_EQ(listener_.unreadable.size(), 1u);
  EXPECT_EQ(listener_.unreadable[0].find_first_of("\n\x1b"), std::string::npos);
}

}  // namespace
}  // namespace nanwatch
