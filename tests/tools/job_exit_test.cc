// SPDX-License-Identifier: Apache-2.0
#include "tools/job_exit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "daemon/base/directories.h"
#include "daemon/ingest/exit_file.h"
#include "tests/tools/temporary_directory.h"

namespace nanwatch {
namespace {

TEST(JobExitFile, IsReadByTheDaemonAsItWasMeant) {
  const CommandEnd failed = {
      .by_signal = false, .exit_code = 7, .signal = 0, .asked_to_stop = false};
  const Result<JobExit> read =
      ParseJobExit(JobExitText("0123456789ab", 4711, failed, 1'795'257'546'123'000'000));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, (JobExit{.job = "0123456789ab",
                            .pid = 4711,
                            .exit_code = 7,
                            .signal = {},
                            .ended_real_ns = 1'795'257'546'123'000'000}));
}

TEST(JobExitFile, TellsASignalFromAStatus) {
  const CommandEnd killed = {
      .by_signal = true, .exit_code = 0, .signal = SIGKILL, .asked_to_stop = false};
  const Result<JobExit> read = ParseJobExit(JobExitText("j", 1, killed, 5));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->exit_code, std::nullopt);
  EXPECT_EQ(read->signal, SIGKILL);
}

TEST(JobExitFile, AppearsWholeUnderItsNameAndLeavesNothingElse) {
  TemporaryDirectory directory;
  ASSERT_TRUE(WriteJobExit(directory.path(), "j", 1, CommandEnd(), 5).ok());
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    EXPECT_EQ(entry.path().filename(), "j" + ExitSuffix());
    ++files;
  }
  EXPECT_EQ(files, 1);
  EXPECT_TRUE(ReadJobExit(directory.Path("j" + ExitSuffix())).ok());
}

TEST(JobExitFile, ADirectoryThatIsGoneIsAFailureNotACrash) {
  TemporaryDirectory directory;
  EXPECT_FALSE(WriteJobExit(directory.Path("absent"), "j", 1, CommandEnd(), 5).ok());
}

}  // namespace
}  // namespace nanwatch
