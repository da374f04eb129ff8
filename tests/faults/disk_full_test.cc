// SPDX-License-Identifier: Apache-2.0
// Fault 7: the disk with the database fills up, at any call, and has room again later.
#include <filesystem>

#include "tests/fakes/faulty_disk.h"
#include "tests/faults/scene.h"

namespace nanwatch {
namespace {

class DiskFullTest : public FaultTest {
 protected:
  FaultyDisk disk_;
};

TEST_F(DiskFullTest, FromAnyCallOnKeepsEverythingInTheSegmentsAndGoesOnByItself) {
  const int rounds = FaultRounds(40, 400);
  for (int nth = 1; nth <= rounds && !HasFailure(); ++nth) {
    options_.state_dir = directory_ / ("state-" + std::to_string(nth));
    Start();
    const auto nonce = static_cast<uint64_t>(nth);
    SegmentBuilder job(options_.segment_dir, {.nonce = nonce});
    Tick();
    listener_.troubles.clear();
    disk_.FailAt(static_cast<uint64_t>(nth), FaultyDisk::Fault::kFull, /*lasting=*/true);
    uint64_t written = 0;
    for (int i = 0; i < 13; ++i) {
      written = job.WriteValue("aten::log", "a" + std::to_string(i % 7));
      Tick(10'000);
    }
    EXPECT_LE(listener_.troubles.size(), 6u)
        << "commits and verdicts, each once a minute, call " << nth << ": "
        << testing::PrintToString(listener_.troubles);
    disk_.Heal();
    Tick(2'100);
    Tick(2'100);
    EXPECT_EQ(TicketsOf(nonce) + job.dropped(), written) << "call " << nth;
    ExpectSoundStore();
    daemon_.reset();
    std::filesystem::remove(job.path());
  }
}

}  // namespace
}  // namespace nanwatch
