// SPDX-License-Identifier: Apache-2.0
// A power cut takes what is in memory: segments, and what was written and not synced. What the
// daemon removes from memory for good is on the disk before.
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/fakes/faulty_disk.h"
#include "tests/faults/scene.h"

namespace nanwatch {
namespace {

class PowerCutTest : public FaultTest {
 protected:
  FaultyDisk disk_;
};

TEST_F(PowerCutTest, ASegmentIsRemovedWhenItsRowsAreOnTheDiskAndNotBefore) {
  Start();
  SegmentBuilder job(options_.segment_dir, {.nonce = 1, .dead = true});
  job.WriteValue("aten::log", "a");
  disk_.FailSyncs(true);
  Tick();
  Tick(1'100);
  EXPECT_EQ(access(job.path().c_str(), F_OK), 0);
  disk_.FailSyncs(false);
  Tick(1'100);
  EXPECT_NE(access(job.path().c_str(), F_OK), 0);
  EXPECT_FALSE(disk_.HasUnsynced("-wal"));
  EXPECT_EQ(TicketsOf(1), 1u);
  EXPECT_EQ(listener_.ended.size(), 1u) << "once";
}

TEST_F(PowerCutTest, HowACommandEndedIsOnTheDiskBeforeItsFileIsRemoved) {
  Start();
  Tick();
  const std::string path = options_.segment_dir + "/j.exit";
  std::ofstream(path) << R"({"job":"j","pid":1,"exit_code":7})";
  disk_.FailSyncs(true);
  Tick(2'100);
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  disk_.FailSyncs(false);
  Tick(2'100);
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  EXPECT_FALSE(disk_.HasUnsynced("-wal"));
}

// Ranks that end together, or what was left while no daemon ran.
TEST_F(PowerCutTest, ManyThatEndedTakeOneSync) {
  for (uint64_t nonce = 1; nonce <= 100; ++nonce) {
    SegmentBuilder job(options_.segment_dir, {.nonce = nonce, .dead = true});
    job.WriteValue("aten::log", "a");
  }
  Start();
  const uint64_t before = disk_.syncs();
  Tick();
  EXPECT_EQ(daemon_->intake().open_segments(), 0u);
  EXPECT_LE(disk_.syncs() - before, 10u);
}

TEST_F(PowerCutTest, CostsALivingRunNoMoreThanAFewSeconds) {
  Start();
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  Tick();
  uint64_t unsynced_since_ms = 0;
  for (int i = 0; i < 400; ++i) {
    job.WriteValue("aten::log", "a");
    Tick(50);
    unsynced_since_ms = disk_.HasUnsynced("-wal") ? unsynced_since_ms + 50 : 0;
    ASSERT_LE(unsynced_since_ms, 6'000u);
  }
}

}  // namespace
}  // namespace nanwatch
