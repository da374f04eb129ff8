// SPDX-License-Identifier: Apache-2.0
// Fault 4: the daemon is killed at its n-th call to the disk, whatever it is: while a database is
// created, in a commit, a checkpoint, a removal. The next one opens it and goes on.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "tests/fakes/faulty_disk.h"
#include "tests/faults/scene.h"

namespace nanwatch {
namespace {

class KilledInStoreTest : public FaultTest {};

TEST_F(KilledInStoreTest, AtAnyCallNothingIsLostOrTwice) {
  constexpr uint64_t kRecords = 40;
  const int rounds = FaultRounds(60, 1'000);
  int killed = 0;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    // Dense at first, where a database is made; then further and further on.
    const int nth = round < 40 ? round + 1 : 40 + (round - 39) * 3;
    options_.state_dir = directory_ / ("state-" + std::to_string(round));
    const auto nonce = static_cast<uint64_t>(round + 1);
    SegmentBuilder job(options_.segment_dir, {.nonce = nonce});
    for (uint64_t i = 0; i < kRecords; ++i)
      job.WriteValue("aten::log", "a" + std::to_string(i % 9));
    const int status = InChild([&] {
      FaultyDisk disk;
      disk.FailAt(static_cast<uint64_t>(nth), FaultyDisk::Fault::kDeath, /*lasting=*/false);
      Start();
      for (int i = 0; i < 20; ++i) Tick(1'100);
      (void)daemon_->store().Retire();
      daemon_->Finish();
      daemon_.reset();  // the last connection checkpoints
    });
    killed += WIFSIGNALED(status) ? 1 : 0;
    Start();
    Tick();
    EXPECT_EQ(TicketsOf(nonce), kRecords) << "killed at call " << nth;
    EXPECT_EQ(job.dropped(), 0u);
    EXPECT_TRUE(listener_.troubles.empty()) << listener_.troubles.front();
    ExpectSoundStore();
    daemon_.reset();
    std::filesystem::remove(job.path());
  }
  EXPECT_GE(killed, 30);
}

}  // namespace
}  // namespace nanwatch
