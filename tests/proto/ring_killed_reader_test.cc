// SPDX-License-Identifier: Apache-2.0
// The daemon is killed between the commit to its database and the release of the ring, and at other
// moments: its successor starts at the committed cursor, and nothing is lost or told twice.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "tests/proto/shared_ring.h"

namespace nanwatch::wire {
namespace {

constexpr uint64_t kKilledReaderCapacity = 256;
constexpr size_t kRowsMax = 1 << 20;

// Stands for the database: rows and cursor become true together, by one store.
struct Journal {
  struct Commit {
    uint64_t rows;
    uint64_t cursor;
  };
  std::atomic<uint32_t> current;  // which of the two commits holds
  Commit commits[2];
  uint64_t tickets[kRowsMax];
  std::atomic<uint32_t> torn;

  Commit Last() const { return commits[current.load()]; }
  void Put(const Commit& commit) {
    const uint32_t other = 1 - current.load();
    commits[other] = commit;
    current.store(other);
  }
};

enum class Death { kBeforeCommit, kBetweenCommitAndRelease, kAfterRelease };

// One life of a daemon: from the committed cursor, a batch or two, then death.
[[noreturn]] void Consume(SharedRing& ring, Journal& journal, int batches, uint64_t batch_max,
                          Death death) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  RingReader reader = ring.Reader(journal.Last().cursor);
  ReleaseSlots(*ring.header(), reader.cursor());  // what the predecessor did not get to
  RecordCopy copy;
  for (int batch = 1;; ++batch) {
    Journal::Commit commit = journal.Last();
    for (uint64_t read = 0; read < batch_max;) {
      const RingRead result = reader.Read(copy, Holes::kWait);
      if (result == RingRead::kMalformed || (result == RingRead::kRecord && !IsWhole(copy))) {
        ++journal.torn;
      }
      if (result != RingRead::kRecord) {
        if (read > 0) break;
        std::this_thread::yield();
        continue;
      }
      journal.tickets[commit.rows++ % kRowsMax] = copy.header().ticket;
      ++read;
    }
    commit.cursor = reader.cursor();
    const bool last = batch == batches;
    if (last && death == Death::kBeforeCommit) raise(SIGKILL);
    journal.Put(commit);
    if (last && death == Death::kBetweenCommitAndRelease) raise(SIGKILL);
    ReleaseSlots(*ring.header(), commit.cursor);
    if (last) raise(SIGKILL);
  }
}

TEST(RingWithAKilledReader, LosesNothingAndTellsNothingTwice) {
  SharedRing ring(kKilledReaderCapacity);
  const SharedMemory memory(sizeof(Journal));
  auto& journal = *memory.as<Journal>();
  const SharedMemory written_memory(sizeof(std::atomic<uint64_t>));
  auto& written = *written_memory.as<std::atomic<uint64_t>>();

  const pid_t job = fork();
  ASSERT_GE(job, 0);
  if (job == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint64_t ticket = 1;;) {
      if (WriteRecord(ring.writer(), 0, ticket, SizeOf(ticket * 131))) {
        written.store(ticket++);
      } else {
        std::this_thread::yield();
      }
    }
  }
  std::mt19937_64 random(20240608);
  constexpr Death kDeaths[] = {Death::kBetweenCommitAndRelease, Death::kBetweenCommitAndRelease,
                               Death::kBeforeCommit, Death::kAfterRelease};
  int between = 0;
  for (int life = 0; between < kLives; ++life) {
    const Death death = kDeaths[life % 4];
    between += death == Death::kBetweenCommitAndRelease ? 1 : 0;
    const int batches = 1 + static_cast<int>(random() % 3);
    const uint64_t batch_max = 1 + random() % 40;
    const pid_t daemon = fork();
    ASSERT_GE(daemon, 0);
    if (daemon == 0) Consume(ring, journal, batches, batch_max, death);
    ASSERT_EQ(waitpid(daemon, nullptr, 0), daemon);
  }
  kill(job, SIGKILL);
  waitpid(job, nullptr, 0);

  // The last daemon, once the job is dead.
  RingReader reader = ring.Reader(journal.Last().cursor);
  RecordCopy copy;
  Journal::Commit commit = journal.Last();
  while (reader.Read(copy, Holes::kSkip) == RingRead::kRecord) {
    journal.tickets[commit.rows++] = copy.header().ticket;
  }
  ASSERT_LT(commit.rows, kRowsMax);
  EXPECT_EQ(journal.torn.load(), 0u);
  for (uint64_t row = 0; row < commit.rows; ++row) {
    ASSERT_EQ(journal.tickets[row], row + 1) << "lost or told twice";
  }
  EXPECT_GE(commit.rows, written.load());
  EXPECT_GT(commit.rows, static_cast<uint64_t>(kLives));
}

}  // namespace
}  // namespace nanwatch::wire
