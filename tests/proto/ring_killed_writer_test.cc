// SPDX-License-Identifier: Apache-2.0
// A job is killed at any moment: what it committed is read, once and whole, and what it did not is
// counted.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "tests/proto/shared_ring.h"

namespace nanwatch::wire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kThreads = 3;
constexpr uint64_t kKilledWriterCapacity = 4096;

// What each writer thread knows to be committed; in memory that outlives it.
struct Progress {
  std::atomic<uint64_t> committed[kThreads];
};

[[noreturn]] void WriteUntilKilled(SharedRing& ring, Progress& progress) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto write = [&](uint32_t thread) {
    for (uint64_t ticket = 1;;) {
      if (WriteRecord(ring.writer(), thread, ticket, SizeOf(ticket * 131 + thread))) {
        progress.committed[thread].store(ticket++);
      } else {
        std::this_thread::yield();
      }
    }
  };
  for (uint32_t thread = 1; thread < kThreads; ++thread) std::thread(write, thread).detach();
  write(0);
  _exit(1);
}

struct Tally {
  uint64_t records = 0;
  uint64_t slots = 0;
  uint64_t last[kThreads] = {};
};

// Reads what there is; false (with a failure) when something read is torn, repeated or missing.
bool Drain(SharedRing& ring, RingReader& reader, Holes holes, Tally& tally) {
  RecordCopy copy;
  for (uint64_t passed = 0; passed < 4 * kKilledWriterCapacity; ++passed) {
    const RingRead read = reader.Read(copy, holes);
    if (read != RingRead::kRecord) {
      EXPECT_NE(read, RingRead::kMalformed);
      return read != RingRead::kMalformed;
    }
    const RecordHeader& header = copy.header();
    const bool expected =
        IsWhole(copy) && header.thread < kThreads && header.ticket == tally.last[header.thread] + 1;
    EXPECT_TRUE(expected) << "thread " << header.thread << ", ticket " << header.ticket;
    if (!expected) return false;
    tally.last[header.thread] = header.ticket;
    ++tally.records;
    tally.slots += SlotsFor(header.bytes);
    ReleaseSlots(*ring.header(), reader.cursor());
  }
  return true;
}

TEST(RingWithAKilledWriter, GivesEveryCommittedRecordOnceAndWhole) {
  std::mt19937_64 random(20240607);
  uint64_t records = 0;
  uint64_t hole_slots = 0;
  for (int life = 0; life < kLives; ++life) {
    SharedRing ring(kKilledWriterCapacity);
    const SharedMemory memory(sizeof(Progress));
    auto& progress = *memory.as<Progress>();
    const pid_t job = fork();
    ASSERT_GE(job, 0);
    if (job == 0) WriteUntilKilled(ring, progress);

    RingReader reader = ring.Reader();
    Tally tally;
    // Most are killed in full run, some while they start.
    const auto too_late = Clock::now() + std::chrono::seconds(60);
    while (life % 8 != 0 && ring.header()->reserved_slots.load() == 0) {
      ASSERT_LT(Clock::now(), too_late) << "the writer does not start";
      std::this_thread::yield();
    }
    const auto end = Clock::now() + std::chrono::microseconds(random() % 300);
    bool good = true;
    while (good && Clock::now() < end) {
      good = Drain(ring, reader, Holes::kWait, tally);
    }
    ASSERT_EQ(kill(job, SIGKILL), 0);
    ASSERT_EQ(waitpid(job, nullptr, 0), job);
    ASSERT_TRUE(good && Drain(ring, reader, Holes::kSkip, tally)) << "life " << life;

    for (uint32_t thread = 0; thread < kThreads; ++thread) {
      // The thread may have been killed between the commit and its note of it.
      const uint64_t committed = progress.committed[thread].load();
      ASSERT_GE(tally.last[thread], committed) << "life " << life;
      ASSERT_LE(tally.last[thread], committed + 1) << "life " << life;
    }
    // Every slot handed out is accounted for, and a thread leaves one hole at the most.
    ASSERT_EQ(tally.slots + reader.hole_slots(), ring.header()->reserved_slots.load());
    ASSERT_LE(reader.hole_slots(), kThreads * kRecordSlotsMax);
    records += tally.records;
    hole_slots += reader.hole_slots();
  }
  RecordProperty("records", std::to_string(records));
  RecordProperty("hole_slots", std::to_string(hole_slots));
  EXPECT_GT(records, static_cast<uint64_t>(kLives));
  if (kLives < 1000) return;
  EXPECT_GT(hole_slots, 0u) << "no writer was ever killed inside a write: the test shows nothing";
}

}  // namespace
}  // namespace nanwatch::wire
