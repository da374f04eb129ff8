// SPDX-License-Identifier: Apache-2.0
// `nanwatch gc` after a crash of everything: what holds findings is read, the rest is removed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "proto/wire/naming.h"
#include "tests/e2e/wrong_use/tool_process.h"
#include "tests/fakes/segment_builder.h"

namespace nanwatch {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(Gc, LetsTheDaemonReadWhatEndedProcessesLeftAndRemovesTheRest) {
  Tool tool;
  fs::create_directories(tool.SegmentDir());
  fs::permissions(tool.SegmentDir(), fs::perms::owner_all);
  SegmentBuilder job(tool.SegmentDir(), {.nonce = 0xabc, .job = "lost", .dead = true});
  job.WriteValue("aten::log", "encoder");
  job.Publish();
  const std::string left = tool.SegmentDir() + "/attach-17";
  std::ofstream(left) << "left";
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(2));

  const ToolResult dry = tool.Run({"gc", "--dry-run", "--json"});
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  const auto listed = nlohmann::json::parse(dry.out);
  EXPECT_EQ(listed["unread_segments"], 1);
  ASSERT_EQ(listed["files"].size(), 1u);
  EXPECT_EQ(listed["files"][0]["path"], left);
  EXPECT_TRUE(fs::exists(left));

  const ToolResult removed = tool.Run({"gc", "--wait", "600"});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_THAT(removed.out, HasSubstr("removed 1 file"));
  EXPECT_FALSE(fs::exists(left));
  EXPECT_FALSE(fs::exists(job.path()));
  EXPECT_THAT(tool.Run({"ps", "--all"}).out, HasSubstr("lost")) << "its findings are kept";
}

// A daemon does not read it, because it has the name of another run's.
TEST(Gc, KeepsWhatNobodyHasReadUnlessItIsAsked) {
  Tool tool;
  fs::create_directories(tool.SegmentDir());
  fs::permissions(tool.SegmentDir(), fs::perms::owner_all);
  SegmentBuilder job(tool.SegmentDir(), {.nonce = 0xabc, .dead = true});
  job.WriteValue("aten::log", "encoder");
  const std::string unread = tool.SegmentDir() + "/" + wire::kSegmentPrefix + "17-1.seg";
  fs::rename(job.path(), unread);

  const ToolResult kept = tool.Run({"gc", "--wait", "0"});
  EXPECT_EQ(kept.exit_code, 1);
  EXPECT_THAT(kept.out, HasSubstr("removed 0 files"));
  EXPECT_THAT(kept.err, HasSubstr("1 segment of an ended process was not read"));
  EXPECT_TRUE(fs::exists(unread));
  const ToolResult document = tool.Run({"gc", "--wait", "0", "--json"});
  EXPECT_EQ(document.exit_code, 1);
  EXPECT_EQ(nlohmann::json::parse(document.out)["unread_segments"], 1);
  EXPECT_TRUE(fs::exists(unread));

  const ToolResult fresh = tool.Run({"gc", "--wait", "0", "--unread"});
  EXPECT_EQ(fresh.exit_code, 1);
  EXPECT_THAT(fresh.err, HasSubstr("run this again in a minute"));
  EXPECT_TRUE(fs::exists(unread)) << "nobody had the time to read it";

  fs::last_write_time(unread, fs::file_time_type::clock::now() - std::chrono::hours(2));
  const ToolResult removed = tool.Run({"gc", "--wait", "0", "--unread"});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_THAT(removed.out, HasSubstr("removed 1 file"));
  EXPECT_FALSE(fs::exists(unread));
}

}  // namespace
}  // namespace nanwatch
