// SPDX-License-Identifier: Apache-2.0
// The daemon may be killed at any moment: nothing is in the database twice, nothing is lost.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <set>

#include "daemon/loop/daemon.h"
#include "daemon/loop/segment_intake.h"
#include "daemon/store/store.h"
#include "tests/fakes/recording_listener.h"
#include "tests/fakes/segment_builder.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

constexpr int kKills = 1'000;

Verdict NoVerdict(const std::vector<RunFacts>&) { return {}; }

class KilledDaemonTest : public testing::Test {
 protected:
  // One life of a daemon in a process of its own, which ends without a word between the commit and
  // the release.
  void LiveUntilCommit() {
    const pid_t daemon = fork();
    if (daemon == 0) {
      RecordingListener listener;
      Result<Daemon> life = Daemon::Start(options_, NoVerdict, clock_, listener);
      if (!life.ok()) _exit(2);
      life->intake().set_after_commit([](const std::string&) { _exit(0); });
      (void)life->Tick();
      _exit(3);  // nothing was committed
    }
    int status = 0;
    ASSERT_EQ(waitpid(daemon, &status, 0), daemon);
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }
  // One life that is ended by SIGKILL after so many microseconds, wherever it stands.
  void LiveFor(int us) {
    const pid_t daemon = fork();
    if (daemon == 0) {
      RecordingListener listener;
      Result<Daemon> life = Daemon::Start(options_, NoVerdict, clock_, listener);
      if (life.ok()) (void)life->Run(-1);
      _exit(1);
    }
    usleep(static_cast<useconds_t>(us));
    kill(daemon, SIGKILL);
    waitpid(daemon, nullptr, 0);
  }
  // What is in the database once a daemon was left in peace: every ticket, each once.
  void ExpectAll(const SegmentBuilder& job, uint64_t tickets) {
    RecordingListener listener;
    Result<Daemon> daemon = Daemon::Start(options_, NoVerdict, clock_, listener);
    ASSERT_TRUE(daemon.ok()) << daemon.status().message();
    ASSERT_TRUE(daemon->Tick().ok());
    const RunFacts facts = daemon->store().Facts(RunId(job.header().nonce)).value();
    std::set<uint64_t> distinct;
    for (const Record& record : facts.records()) distinct.insert(record.ticket());
    EXPECT_EQ(static_cast<uint64_t>(facts.records_size()), tickets) << "nothing lost";
    EXPECT_EQ(distinct.size(), tickets) << "nothing twice";
    EXPECT_EQ(job.dropped(), 0u);
    EXPECT_TRUE(listener.troubles.empty());
  }

  TemporaryDirectory directory_;
  SystemClock clock_;
  DaemonOptions options_{.segment_dir = directory_ / "segments", .state_dir = directory_ / "state"};
};

TEST_F(KilledDaemonTest, BetweenCommitAndReleaseAThousandTimesNothingIsTwiceAndNothingLost) {
  std::mt19937 random(7);
  ASSERT_EQ(mkdir(options_.segment_dir.c_str(), 0700), 0);
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  uint64_t written = 0;
  for (int i = 0; i < kKills && !HasFatalFailure(); ++i) {
    for (uint32_t n = random() % 4; n > 0; --n)
      written = job.WriteValue("aten::log", "layer." + std::to_string(i % 100));
    job.Publish();
    LiveUntilCommit();
  }
  ExpectAll(job, written);
}

TEST_F(KilledDaemonTest, AtAnyMomentNothingIsTwiceAndNothingLost) {
  std::mt19937 random(11);
  ASSERT_EQ(mkdir(options_.segment_dir.c_str(), 0700), 0);
  SegmentBuilder job(options_.segment_dir, {.layout = kSegmentLayout, .nonce = 1});
  uint64_t written = 0;
  for (int i = 0; i < 100; ++i) {
    for (int n = 0; n < 20; ++n)
      written = job.WriteValue("aten::log", "layer." + std::to_string(i % 100));
    LiveFor(static_cast<int>(random() % 20'000));
  }
  ExpectAll(job, written);
}

}  // namespace
}  // namespace nanwatch
