// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/exit_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

TEST(ExitFileTest, TellsTheStatusOfACommandThatExited) {
  const Result<JobExit> exit = ParseJobExit(
      R"({"job": "j1", "pid": 42, "exit_code": 3, "signal": null, "ended_real_ns": 1790000000000000001})");
  ASSERT_TRUE(exit.ok());
  EXPECT_EQ(*exit, (JobExit{.job = "j1",
                            .pid = 42,
                            .exit_code = 3,
                            .signal = {},
                            .ended_real_ns = 1790000000000000001}));
}

TEST(ExitFileTest, TellsTheSignalOfACommandThatWasKilled) {
  const Result<JobExit> exit =
      ParseJobExit(R"({"job": "j1", "pid": 42, "exit_code": null, "signal": 9})");
  ASSERT_TRUE(exit.ok());
  EXPECT_FALSE(exit->exit_code.has_value());
  EXPECT_EQ(exit->signal, 9);
}

TEST(ExitFileTest, RefusesWhatIsNoSuchObject) {
  for (const char* text :
       {"", "{", "[]", "3", "{}", R"({"job": 3})", R"({"job": ""})", "\xff\xfe"}) {
    EXPECT_FALSE(ParseJobExit(text).ok()) << text;
  }
}

TEST(ExitFileTest, NumbersThatCannotBeAreUnknown) {
  const Result<JobExit> exit = ParseJobExit(
      R"({"job": "j", "pid": 1e99, "exit_code": 99999999999, "signal": "KILL", "ended_real_ns": -1.5})");
  ASSERT_TRUE(exit.ok());
  EXPECT_EQ(exit->pid, 0);
  EXPECT_FALSE(exit->exit_code.has_value());
  EXPECT_FALSE(exit->signal.has_value());
}

TEST(ExitFileTest, DoesNotHangOnAFifo) {
  TemporaryDirectory directory;
  ASSERT_EQ(mkfifo((directory / "j.exit").c_str(), 0600), 0);
  EXPECT_FALSE(ReadJobExit(directory / "j.exit").ok());
}

}  // namespace
}  // namespace nanwatch
