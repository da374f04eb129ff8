// SPDX-License-Identifier: Apache-2.0
// Fault 8: each sync of the disk takes long. The ring covers what comes meanwhile, and what it does
// not cover is counted.
#include <thread>

#include "tests/fakes/faulty_disk.h"
#include "tests/faults/scene.h"

namespace nanwatch {
namespace {

class SlowDiskTest : public FaultTest {
 protected:
  FaultyDisk disk_;
};

TEST_F(SlowDiskTest, LosesNothingUncounted) {
  disk_.DelaySyncs(static_cast<uint32_t>(FaultRounds(100, 5'000)));
  SegmentBuilder job(options_.segment_dir, {.layout = kSegmentLayout, .nonce = 1});
  Start();
  uint64_t written = 0;
  std::thread writer([&] {
    for (int i = 0; i < 20'000; ++i) written = job.WriteValue("aten::log", "a");
  });
  for (int i = 0; i < 20; ++i) Tick(1'000);
  writer.join();
  for (int i = 0; i < 3; ++i) Tick(1'000);
  job.Publish();
  Tick(1'000);
  const RunFacts facts = FactsOf(1);
  EXPECT_EQ(TicketsOf(1) + job.dropped() + facts.state().records_thinned(), written);
  EXPECT_EQ(facts.state().records_dropped(), job.dropped()) << "and it is in the database";
}

// Ordinary commits wait for no disk.
TEST_F(SlowDiskTest, HoldsUpACommitInFiveSecondsAndNoMore) {
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  Start();
  Tick();
  const uint64_t before = disk_.syncs();
  for (int i = 0; i < 200; ++i) {
    job.WriteValue("aten::log", "a");
    Tick(50);
  }
  EXPECT_LE(disk_.syncs() - before, 12u) << "200 commits in ten seconds";
}

}  // namespace
}  // namespace nanwatch
