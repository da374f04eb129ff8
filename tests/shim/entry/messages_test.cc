// SPDX-License-Identifier: Apache-2.0
// What the shim says reaches stderr or the log, and never disturbs who is there.
#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/shim/entry/messages_probe.h"

namespace nanwatch::test {
namespace {

struct Messages : ::testing::Test {
  Messages() {
    std::string pattern = std::filesystem::temp_directory_path() / "nanwatch-messages-XXXXXX";
    folder = mkdtemp(pattern.data());
    log = folder / "log";
  }
  ~Messages() override { std::filesystem::remove_all(folder); }

  std::string Log() const {
    std::ifstream file(log);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder;
  std::string log;
};

TEST_F(Messages, PutsItsNameBeforeALineAndEndsIt) {
  messages_probe_begin(log.c_str());
  messages_probe_say("torch is here");
  EXPECT_EQ(Log(), "nanwatch: torch is here\n");
}

TEST_F(Messages, AddsToALogThatIsThere) {
  std::ofstream(log) << "before\n";
  messages_probe_begin(log.c_str());
  messages_probe_say("after");
  EXPECT_EQ(Log(), "before\nnanwatch: after\n");
}

TEST_F(Messages, FallsSilentAfterEightLines) {
  messages_probe_begin(log.c_str());
  for (int line = 0; line < 20; ++line) messages_probe_say("again");
  const std::string text = Log();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 8);
}

TEST_F(Messages, CutsAnEndlessLineAndStillEndsIt) {
  messages_probe_begin(log.c_str());
  messages_probe_say(std::string(100000, 'x').c_str());
  const std::string text = Log();
  EXPECT_LE(text.size(), 2048u);
  EXPECT_TRUE(text.ends_with("x\n"));
}

TEST_F(Messages, KeepsErrnoWhenTheLogCannotBeWritten) {
  messages_probe_begin("/no/such/folder/log");
  errno = 77;
  messages_probe_say("unheard");
  EXPECT_EQ(errno, 77);
}

// Leaves with 0 when a line for a stderr that nobody reads any more was survived on a thread that
// would die of SIGPIPE.
[[noreturn]] void SayIntoAClosedPipe() {
  int ends[2];
  if (pipe(ends) != 0) _exit(1);
  close(ends[0]);
  dup2(ends[1], STDERR_FILENO);
  messages_probe_begin(nullptr);
  messages_probe_say("unheard");
  _exit(0);
}

TEST_F(Messages, DoesNotKillByAPipeThatNobodyReads) {
  EXPECT_EXIT(SayIntoAClosedPipe(), ::testing::ExitedWithCode(0), "");
}

// Leaves with 0 when a line for a full pipe was dropped; blocks for good otherwise, and the alarm
// ends it.
[[noreturn]] void SayIntoAFullPipe() {
  int ends[2];
  if (pipe(ends) != 0) _exit(1);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  static const char kFill[4096] = {};
  while (write(ends[1], kFill, sizeof kFill) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);
  dup2(ends[1], STDERR_FILENO);
  alarm(20);
  messages_probe_begin(nullptr);
  messages_probe_say("no room");
  _exit(0);
}

TEST_F(Messages, DoesNotWaitForAFullPipe) {
  EXPECT_EXIT(SayIntoAFullPipe(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace nanwatch::test
