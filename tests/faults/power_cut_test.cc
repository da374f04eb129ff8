// SPDX-License-Identifier: Apache-2.0
// A power cut takes what is in memory: segments, and what was written and not synced. What the
// daemon removes from memory for good is on the disk before.
#include <unistd.h>

#include "tests/fakes/faulty_disk.h"
#include "tests/faults/scene.h"

namespace nanwatch {
namespace {

class PowerCutTest : public FaultTest {
 protected:
  FaultyDisk disk_;
};

TEST_F(PowerCutTest, ASegmentIsRemovedWhenItsRowsAreOnTheDisk) {
  Start();
  SegmentBuilder job(options_.segment_dir, {.nonce = 1, .dead = true});
  job.WriteValue("aten::log", "a");
  bool was_unsynced = true;
  daemon_->intake().set_after_commit([&] { was_unsynced = disk_.HasUnsynced("-wal"); });
  Tick();
  EXPECT_NE(access(job.path().c_str(), F_OK), 0);
  EXPECT_FALSE(was_unsynced);
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
