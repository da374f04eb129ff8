// SPDX-License-Identifier: Apache-2.0
// Fault 22: more segments than the daemon has descriptors for, and many short-lived jobs. What waits
// is said, nothing is lost, and nothing is left when they are gone.
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "tests/fakes/faulty_disk.h"
#include "tests/faults/scene.h"

namespace nanwatch {
namespace {

namespace fs = std::filesystem;

size_t CountFiles(const std::string& directory) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

class TooManyTest : public FaultTest {
 protected:
  // Dead ones, each with a finding.
  void LeaveSegments(uint64_t first, uint64_t count) {
    for (uint64_t nonce = first; nonce < first + count; ++nonce) {
      SegmentBuilder job(options_.segment_dir, {.nonce = nonce, .dead = true});
      job.WriteValue("aten::log", "a");
    }
  }
};

TEST_F(TooManyTest, SegmentsForTheDescriptorsWaitForTheirTurnAndThatIsSaid) {
  constexpr uint64_t kSegments = 100;
  LeaveSegments(1, kSegments);
  const int status = InChild([&] {
    const rlimit few{40, 40};
    setrlimit(RLIMIT_NOFILE, &few);
    Start();
    for (int i = 0; i < 30; ++i) Tick(2'100);
    uint64_t read = 0;
    for (uint64_t nonce = 1; nonce <= kSegments; ++nonce) read += TicketsOf(nonce);
    if (read != kSegments) _exit(2);
    const bool told = std::any_of(
        listener_.troubles.begin(), listener_.troubles.end(),
        [](const std::string& text) { return text.find("wait to be read") != std::string::npos; });
    if (!told) _exit(3);
    if (listener_.troubles.size() > 3) _exit(4);  // once a minute
  });
  EXPECT_EQ(status, 0) << "exit status " << (status >> 8);
}

TEST_F(TooManyTest, ShortLivedJobsLeaveNothingBehind) {
  Start();
  const int rounds = FaultRounds(10, 500);
  size_t descriptors = 0;
  for (int i = 0; i < rounds; ++i) {
    LeaveSegments(static_cast<uint64_t>(i) * 20 + 1, 20);
    for (int ticks = 0; ticks < 3; ++ticks) Tick(2'100);
    if (i == 0) descriptors = CountFiles("/proc/self/fd");
  }
  EXPECT_EQ(CountFiles("/proc/self/fd"), descriptors);
  EXPECT_EQ(CountFiles(options_.segment_dir), 1u) << "the lock";
  ASSERT_TRUE(daemon_->store().Retire().ok());
  EXPECT_LE(daemon_->store().Runs({.count_max = 10'000})->size(), static_cast<size_t>(kRunsKept));
  ExpectSoundStore();
}

// A transaction costs as much as some ten records.
TEST_F(TooManyTest, WhatManyRunsHaveIsWrittenTogether) {
  const FaultyDisk disk;
  constexpr uint64_t kRuns = 50;
  std::vector<std::unique_ptr<SegmentBuilder>> jobs;
  for (uint64_t nonce = 1; nonce <= kRuns; ++nonce) {
    jobs.push_back(std::make_unique<SegmentBuilder>(
        options_.segment_dir, SegmentBuilderOptions{.nonce = nonce, .job = "j"}));
    jobs.back()->WriteValue("aten::log", "a");
  }
  Start();
  Tick();
  const auto calls_of_tick = [&](uint64_t runs) {
    for (uint64_t i = 0; i < runs; ++i) jobs[i]->WriteValue("aten::log", "a");
    const uint64_t before = disk.calls();
    Tick();
    return disk.calls() - before;
  };
  const uint64_t of_one = calls_of_tick(1);
  const uint64_t of_all = calls_of_tick(kRuns);
  EXPECT_LT(of_all, kRuns * of_one / 2) << of_one << " calls for one run";
  for (uint64_t nonce = 1; nonce <= kRuns; ++nonce) EXPECT_GE(TicketsOf(nonce), 2u);
}

}  // namespace
}  // namespace nanwatch
