// SPDX-License-Identifier: Apache-2.0
// Nothing in a segment can crash or hang its reader: another process writes whatever it likes while
// it reads.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>

#include "proto/wire/name_table.h"
#include "proto/wire/site_table.h"
#include "proto/wire/step_ring.h"
#include "tests/proto/shared_ring.h"

namespace nanwatch::wire {
namespace {

constexpr uint64_t kHostileCapacity = 1024;

// Values that make a reader go wrong if anything does.
uint64_t NastyWord(std::mt19937_64& random, const RingHeader& header) {
  const uint64_t reserved = header.reserved_slots.load(std::memory_order_relaxed);
  switch (random() % 8) {
    case 0:
      return random();
    case 1:
      return ~0ull - random() % 4;
    case 2:
      return random() % (2 * kHostileCapacity);
    case 3:
      return reserved + random() % 8;
    case 4:
      return reserved - random() % 8;
    case 5:
      return reserved + kHostileCapacity + random() % 4;
    case 6:
      return 1ull << random() % 64;
    default:
      return 0;
  }
}

// Flips bits and fills words of cursors and slots, and writes proper records in between, for ever.
[[noreturn]] void WriteAnything(SharedRing& ring) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::mt19937_64 random(7);
  auto* words = reinterpret_cast<uint64_t*>(ring.header());
  const size_t slot_words = kHostileCapacity * sizeof(Slot) / 8;
  auto* slots = reinterpret_cast<uint64_t*>(ring.slots());
  for (uint64_t round = 0;; ++round) {
    std::atomic_ref<uint64_t> target(round % 3 == 0 ? words[random() % (sizeof(RingHeader) / 8)]
                                                    : slots[random() % slot_words]);
    if (random() % 2 == 0) {
      target.fetch_xor(1ull << random() % 64);
    } else {
      target.store(NastyWord(random, *ring.header()));
    }
    if (round % 16 == 0) {  // a stretch of heads that carry their own number, with any length
      const uint64_t first = ring.header()->reserved_slots.load() - random() % 64;
      for (uint64_t number = first; number < first + 32; ++number) {
        Slot& slot = ring.slots()[number & (kHostileCapacity - 1)];
        const uint64_t length =
            random() % 4 == 0 ? random() : random() % 1400 << 16 | random() % 10;
        StoreWords(slot.payload, &length, sizeof length);
        slot.commit.store(number + 1);
      }
    }
    if (round % 32 == 0) {  // plausible again, or both sides would soon stand still
      ring.header()->capacity = kHostileCapacity;
      const uint64_t sane = random() % (4 * kHostileCapacity);
      ring.header()->released_slots = sane;
      ring.header()->reserved_slots = sane + random() % kHostileCapacity;
    }
    (void)WriteRecord(ring.writer(), 0, round, SizeOf(round));
  }
}

TEST(RingInHostileMemory, IsReadWithoutACrashAndInBoundedWork) {
  SharedRing ring(kHostileCapacity);
  RingReader reader = ring.Reader();
  const pid_t job = fork();
  ASSERT_GE(job, 0);
  if (job == 0) WriteAnything(ring);

  RecordCopy copy;
  uint64_t results[4] = {};
  const auto malformed = [&] { return results[static_cast<int>(RingRead::kMalformed)]; };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int read = 0; malformed() < 5'000; ++read) {
    ASSERT_TRUE(read % 1024 != 0 || std::chrono::steady_clock::now() < deadline) << malformed();
    const uint64_t before = reader.cursor();
    const RingRead result = reader.Read(copy, read % 2 == 0 ? Holes::kWait : Holes::kSkip);
    ++results[static_cast<int>(result)];
    // The promises a caller builds on: a cursor never falls back, and a record or a malformed one
    // is progress.
    ASSERT_GE(reader.cursor(), before);
    if (result == RingRead::kRecord) {
      ASSERT_GE(copy.header().bytes, sizeof(RecordHeader));
      ASSERT_LE(copy.header().bytes, kRecordBytesMax);
      ASSERT_GE(copy.header().kind, 1);
      ASSERT_LE(copy.header().kind, kRecordKindMax);
    }
    if (result == RingRead::kRecord || result == RingRead::kMalformed) {
      ASSERT_GT(reader.cursor(), before);
    }
    if (read % 7 == 0) ReleaseSlots(*ring.header(), reader.cursor());
    if (read % 16 == 0) {  // as a daemon would start over
      if (const auto again = RingReader::Open(ring.header(), ring.bytes())) reader = *again;
    }
  }
  kill(job, SIGKILL);
  waitpid(job, nullptr, 0);
  for (const uint64_t count : results) EXPECT_GT(count, 0u) << "a kind of outcome was never met";
}

TEST(TablesInHostileMemory, AreReadWithoutACrash) {
  constexpr size_t kBytes = 64 * 1024;
  const SharedMemory memory(kBytes);
  const SharedMemory rounds(sizeof(std::atomic<uint64_t>));
  const pid_t job = fork();
  ASSERT_GE(job, 0);
  if (job == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::mt19937_64 random(8);
    auto* words = memory.as<uint64_t>();
    for (;; ++*rounds.as<std::atomic<uint64_t>>()) {
      const size_t at = random() % 4 == 0 ? random() % 8 : random() % (kBytes / 8);
      const uint64_t value = random() % 2 == 0 ? random() % 1000 << 32 | random() % 1000 : random();
      std::atomic_ref<uint64_t>(words[at]).store(value);
    }
  }
  std::mt19937_64 random(9);
  uint64_t opened = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int round = 0; opened < 20'000 || *rounds.as<std::atomic<uint64_t>>() < 200'000; ++round) {
    ASSERT_TRUE(round % 1024 != 0 || std::chrono::steady_clock::now() < deadline) << opened;
    const auto id = static_cast<uint32_t>(random() % 2000);
    if (const auto names = NameReader::Open(memory.as<void>(), kBytes)) {
      ++opened;
      ASSERT_LE(names->Get(id).size(), kTextBytesMax);
    }
    if (const auto sites = SiteReader::Open(memory.as<void>(), kBytes)) {
      ++opened;
      (void)sites->Get(id);
    }
    if (auto steps = StepReader::Open(memory.as<void>(), kBytes, random())) {
      ++opened;
      StepEntry entry{};
      (void)steps->Read(entry);
    }
  }
  kill(job, SIGKILL);
  waitpid(job, nullptr, 0);
}

}  // namespace
}  // namespace nanwatch::wire
