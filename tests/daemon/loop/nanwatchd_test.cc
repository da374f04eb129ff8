// SPDX-License-Identifier: Apache-2.0
// nanwatchd as a process: what its command line, its signals and its lock promise.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "daemon/base/directories.h"
#include "daemon/store/store.h"
#include "proto/wire/naming.h"
#include "tests/fakes/segment_builder.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

bool Eventually(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

std::string ContentOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class NanwatchdTest : public testing::Test {
 protected:
  ~NanwatchdTest() override {
    // A detached one says in its lock who it is.
    const int detached = std::atoi(ContentOf(lock_).c_str());
    if (detached > 0 && detached_) kill(detached, SIGKILL);
  }
  pid_t Spawn(std::vector<std::string> more = {}) {
    std::vector<std::string> words = {NANWATCHD, "--dir", segments_, "--state-dir", state_};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      const int out = open(stderr_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      dup2(out, STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    return pid;
  }
  static int StatusOf(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  bool IsReady() {
    return Eventually([&] { return ContentOf(stderr_).find("watches") != std::string::npos; });
  }

  TemporaryDirectory directory_;
  std::string segments_ = directory_ / "segments";
  std::string state_ = directory_ / "state";
  std::string stderr_ = directory_ / "stderr";
  std::string lock_ = DaemonLockPath(segments_);
  bool detached_ = false;
};

TEST_F(NanwatchdTest, LeavesWithStatusZeroWhenAskedAndHasReadWhatWasThere) {
  const pid_t daemon = Spawn();
  ASSERT_TRUE(IsReady()) << ContentOf(stderr_);
  SegmentBuilder job(segments_, {.nonce = 1});
  job.WriteValue("aten::log", "a");
  kill(daemon, SIGTERM);
  EXPECT_EQ(StatusOf(daemon), 0);
  const Result<Store> store = Store::OpenForReading(DatabasePath(state_));
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_EQ(store->Facts(RunId(1)).value().records_size(), 1);
}

TEST_F(NanwatchdTest, ASecondOneRefusesAndSaysWhoRuns) {
  const pid_t daemon = Spawn();
  ASSERT_TRUE(IsReady());
  EXPECT_EQ(StatusOf(Spawn()), 1);
  EXPECT_THAT(ContentOf(stderr_), HasSubstr("process " + std::to_string(daemon) + " since 20"));
  kill(daemon, SIGINT);
  EXPECT_EQ(StatusOf(daemon), 0);
}

TEST_F(NanwatchdTest, DetachesOnceItIsReadyAndLeavesWhenIdle) {
  detached_ = true;
  EXPECT_EQ(StatusOf(Spawn({"--detach", "--idle-exit", "1"})), 0) << ContentOf(stderr_);
  const pid_t background = std::atoi(ContentOf(lock_).c_str());
  ASSERT_GT(background, 0);
  EXPECT_EQ(ContentOf(stderr_), "");
  EXPECT_TRUE(Eventually([&] { return kill(background, 0) != 0; }));
  EXPECT_THAT(ContentOf(HumanLogPath(state_)), HasSubstr("exiting"));
}

TEST_F(NanwatchdTest, WhyItCannotDetachIsSaidWhereItWasAsked) {
  const pid_t daemon = Spawn();
  ASSERT_TRUE(IsReady());
  EXPECT_EQ(StatusOf(Spawn({"--detach"})), 1);
  EXPECT_THAT(ContentOf(stderr_), HasSubstr("another nanwatchd runs"));
  kill(daemon, SIGTERM);
  EXPECT_EQ(StatusOf(daemon), 0);
}

TEST_F(NanwatchdTest, ReopensItsLogsOnHangUp) {
  const pid_t daemon = Spawn();
  ASSERT_TRUE(IsReady());
  fs::rename(EventLogPath(state_), EventLogPath(state_) + ".theirs");
  fs::rename(HumanLogPath(state_), HumanLogPath(state_) + ".theirs");
  kill(daemon, SIGHUP);
  EXPECT_TRUE(Eventually(
      [&] { return fs::exists(EventLogPath(state_)) && fs::exists(HumanLogPath(state_)); }));
  kill(daemon, SIGTERM);
  EXPECT_EQ(StatusOf(daemon), 0);
}

TEST_F(NanwatchdTest, RefusesASegmentDirectoryThatOthersMayWrite) {
  ASSERT_EQ(mkdir(segments_.c_str(), 0700), 0);
  ASSERT_EQ(chmod(segments_.c_str(), 0777), 0);
  EXPECT_EQ(StatusOf(Spawn()), 1);
  EXPECT_THAT(ContentOf(stderr_), HasSubstr("can be written by others; run: chmod 700"));
}

TEST_F(NanwatchdTest, KeepsItsDatabaseBesideTheSegmentsWhereTheStateDirectoryIsNone) {
  std::ofstream(state_) << "a file";
  const std::string beside = StateBesideSegments(segments_);
  const pid_t daemon = Spawn();
  ASSERT_TRUE(IsReady()) << ContentOf(stderr_);
  SegmentBuilder job(segments_, {.nonce = 1});
  job.WriteValue("aten::log", "a");
  kill(daemon, SIGTERM);
  EXPECT_EQ(StatusOf(daemon), 0);
  EXPECT_THAT(ContentOf(stderr_), HasSubstr(state_));
  EXPECT_THAT(ContentOf(HumanLogPath(beside)), HasSubstr("are beside the segments"));
  const Result<Store> store = Store::OpenForReading(DatabasePath(beside));
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_EQ(store->Facts(RunId(1)).value().records_size(), 1);
}

TEST_F(NanwatchdTest, KeepsWhatWasBesideTheSegmentsUnderAnotherNameOnceTheStateDirectoryIsThere) {
  std::ofstream(state_) << "a file";
  const pid_t first = Spawn();
  ASSERT_TRUE(IsReady()) << ContentOf(stderr_);
  kill(first, SIGTERM);
  EXPECT_EQ(StatusOf(first), 0);
  fs::remove(state_);
  EXPECT_EQ(StatusOf(Spawn({"--idle-exit", "1"})), 0) << ContentOf(stderr_);
  const std::string beside = StateBesideSegments(segments_);
  EXPECT_TRUE(fs::exists(DatabasePath(state_)));
  EXPECT_FALSE(fs::exists(beside));
  EXPECT_TRUE(fs::exists(DatabasePath(beside + ".before")));
}

TEST_F(NanwatchdTest, KeepsItsDatabaseBesideTheSegmentsWhereAnotherWritesTheOne) {
  const pid_t first = Spawn();
  ASSERT_TRUE(IsReady()) << ContentOf(stderr_);
  const std::string others = directory_ / "others";
  segments_ = others;
  const pid_t second = Spawn();
  EXPECT_TRUE(Eventually([&] { return fs::exists(DatabasePath(StateBesideSegments(others))); }));
  for (const pid_t daemon : {first, second}) {
    kill(daemon, SIGTERM);
    EXPECT_EQ(StatusOf(daemon), 0);
  }
  EXPECT_THAT(ContentOf(HumanLogPath(StateBesideSegments(others))),
              HasSubstr("another nanwatchd writes the database in " + state_));
}

TEST_F(NanwatchdTest, WrongUseExitsTwoAndHelpExitsZero) {
  EXPECT_EQ(StatusOf(Spawn({"--bogus"})), 2);
  EXPECT_THAT(ContentOf(stderr_), HasSubstr("--bogus"));
  EXPECT_EQ(StatusOf(Spawn({"--idle-exit"})), 2);
  EXPECT_EQ(StatusOf(Spawn({"--help"})), 0);
}

}  // namespace
}  // namespace nanwatch
