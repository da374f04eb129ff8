// SPDX-License-Identifier: Apache-2.0
// Fault 21: a segment that claims to be another process, or another run.
#include <filesystem>

#include "proto/wire/naming.h"
#include "tests/faults/scene.h"

namespace nanwatch {
namespace {

class SpoofedRunTest : public FaultTest {};

TEST_F(SpoofedRunTest, ACopyThatIsFoundFirstShutsNobodyOut) {
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  job.WriteValue("aten::log", "a");
  // It sorts before the real one.
  std::filesystem::copy_file(
      job.path(), options_.segment_dir + "/" + wire::kSegmentPrefix + "0" + wire::kSegmentSuffix);
  Start();
  Tick();
  job.WriteValue("aten::exp", "b");
  Tick();
  EXPECT_EQ(TicketsOf(1), 2u);
  ASSERT_EQ(listener_.unreadable.size(), 1u);
  EXPECT_NE(listener_.unreadable[0].find("a copy of"), std::string::npos);
}

// No process has the start time 0, and neither has one that is gone.
TEST_F(SpoofedRunTest, WhoClaimsNoStartTimeDoesNotLiveForEver) {
  IdleProcess process;
  SegmentBuilder job(options_.segment_dir, {.nonce = 1, .pid = process.pid()});
  job.header().process_start_ticks = 0;
  job.WriteValue("aten::log", "a");
  process.Kill();
  Start();
  Tick();
  EXPECT_TRUE(FactsOf(1).state().ended());
  EXPECT_EQ(daemon_->intake().open_segments(), 0u);
}

TEST_F(SpoofedRunTest, AFileThatOthersMayWriteIsNotRead) {
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  std::filesystem::permissions(job.path(), std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  Start();
  Tick();
  ASSERT_EQ(listener_.unreadable.size(), 1u);
  EXPECT_NE(listener_.unreadable[0].find("can be written by others"), std::string::npos);
}

}  // namespace
}  // namespace nanwatch
