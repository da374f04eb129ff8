// SPDX-License-Identifier: Apache-2.0
// Fault 11: the state directory, or the right to write to it, goes while the daemon runs.
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "daemon/base/directories.h"
#include "daemon/base/unique_fd.h"
#include "daemon/loop/event_log.h"
#include "daemon/loop/human_log.h"
#include "tests/faults/scene.h"

namespace nanwatch {
namespace {

namespace fs = std::filesystem;

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class VanishedStateTest : public FaultTest {};

TEST_F(VanishedStateTest, IsMadeAgainAndWhatTheSegmentsHoldIsRead) {
  Start();
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  job.WriteValue("aten::log", "a");
  Tick();
  fs::remove_all(options_.state_dir);
  Tick(2'100);
  job.WriteValue("aten::log", "b");
  Tick(1'100);
  EXPECT_EQ(TicketsOf(1), 2u) << "the first finding, which the segment keeps, and the new one";
  ExpectSoundStore();
}

TEST_F(VanishedStateTest, LogsGoOnInNewFiles) {
  const std::string state = directory_ / "logs";
  mkdir(state.c_str(), 0700);
  const auto human = MakeHumanLog(HumanLogPath(state), /*to_stderr=*/false);
  const auto events = MakeEventLog(EventLogPath(state), clock_, kEventFileBytesMax);
  human->Remark("before");
  events->Remark("before");
  fs::remove_all(state);
  mkdir(state.c_str(), 0700);
  human->Remark("after");
  events->Remark("after");
  EXPECT_NE(TextOf(HumanLogPath(state)).find("after"), std::string::npos);
  EXPECT_NE(TextOf(EventLogPath(state)).find("after"), std::string::npos);
}

// As root a directory is never without the right to write; here the next names are taken.
TEST_F(VanishedStateTest, ALogThatCannotBeRenamedStopsGrowing) {
  const std::string state = directory_ / "logs";
  mkdir(state.c_str(), 0700);
  constexpr uint64_t kBytesMax = 4'096;
  const std::string path = EventLogPath(state);
  for (int i = 1; i <= kEventFilesKept; ++i)
    fs::create_directories(path + "." + std::to_string(i) + "/in-the-way");
  const auto events = MakeEventLog(path, clock_, kBytesMax);
  for (int i = 0; i < 200; ++i) events->Remark(std::string(100, 'x'));
  EXPECT_LE(fs::file_size(path), kBytesMax);
  fs::remove_all(path + ".1");
  events->Remark("room again");
  EXPECT_NE(TextOf(path).find("room again"), std::string::npos);
  EXPECT_NE(TextOf(path).find("lines_lost"), std::string::npos);
}

TEST_F(VanishedStateTest, ALogIsNotWrittenThroughALink) {
  const std::string state = directory_ / "logs";
  mkdir(state.c_str(), 0700);
  const std::string victim = directory_ / "victim";
  std::ofstream(victim) << "mine\n";
  fs::create_symlink(victim, EventLogPath(state));
  fs::create_symlink(victim, HumanLogPath(state));
  MakeEventLog(EventLogPath(state), clock_, kEventFileBytesMax)->Remark("a line");
  MakeHumanLog(HumanLogPath(state), /*to_stderr=*/false)->Remark("a line");
  EXPECT_EQ(TextOf(victim), "mine\n");
}

// As one made under umask 002 is.
TEST_F(VanishedStateTest, OneThatOthersMayWriteToIsClosedToThem) {
  for (const mode_t mode : {0775, 0777}) {
    mkdir(options_.state_dir.c_str(), 0700);
    chmod(options_.state_dir.c_str(), mode);
    Start();
    Tick();
    struct stat info {};
    ASSERT_EQ(stat(options_.state_dir.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0755u);
    ASSERT_FALSE(listener_.remarks.empty());
    EXPECT_NE(listener_.remarks.back().find("could be written by others"), std::string::npos);
    listener_.remarks.clear();
  }
}

// Segments that are open and verdicts that are due wait for a database, and the loop with them.
TEST_F(VanishedStateTest, WithoutADatabaseTheLoopDoesNotSpin) {
  Start();
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  job.WriteValue("aten::log", "a");
  Tick();
  fs::remove_all(options_.state_dir);
  std::ofstream(options_.state_dir) << "in the way";
  Tick(2'100);
  int turns = 0;
  for (uint64_t waited_ms = 0; waited_ms < 10'000; ++turns) {
    const auto wait_ms = static_cast<uint64_t>(std::max(1, daemon_->TimeoutMs()));
    waited_ms += wait_ms;
    Tick(wait_ms);
  }
  EXPECT_LE(turns, 10) << "ten seconds, one look every two";
  fs::remove(options_.state_dir);
  Tick(2'100);
  Tick(1'100);
  EXPECT_EQ(TicketsOf(1), 1u);
}

// What has no database to be read into waits for one, and so does the daemon.
TEST_F(VanishedStateTest, ADaemonWithoutADatabaseIsNotIdleWhileAJobHasASegment) {
  options_.idle_exit_ns = 5'000'000'000;
  Start();
  Tick();
  fs::remove_all(options_.state_dir);
  std::ofstream(options_.state_dir) << "in the way";
  Tick(2'100);
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  job.WriteValue("aten::log", "a");
  for (int i = 0; i < 5; ++i) Tick(2'100);
  const UniqueFd stop(eventfd(1, EFD_CLOEXEC));
  const Result<Daemon::Left> left = daemon_->Run(stop.get());
  ASSERT_TRUE(left.ok());
  EXPECT_EQ(*left, Daemon::Left::kStopAsked);
  fs::remove(job.path());
  clock_.AdvanceMs(6'000);
  EXPECT_EQ(*daemon_->Run(stop.get()), Daemon::Left::kIdle);
}

}  // namespace
}  // namespace nanwatch
