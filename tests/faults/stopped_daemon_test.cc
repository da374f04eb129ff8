// SPDX-License-Identifier: Apache-2.0
// Fault 5: the daemon is stopped (SIGSTOP) while a job writes, and goes on later. The job waits for
// nothing; what does not fit is counted. Fault 13: both are stopped; neither is taken for dead.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <limits>
#include <vector>

#include "tests/faults/scene.h"

namespace nanwatch {
namespace {

class StoppedDaemonTest : public FaultTest {
 protected:
  // A daemon in a process of its own, until it is asked to leave.
  pid_t Live() {
    const pid_t daemon = fork();
    if (daemon != 0) return daemon;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const SystemClock clock;
    RecordingListener listener;
    Result<Daemon> life = Daemon::Start(options_, NoVerdict, clock, listener);
    if (life.ok()) (void)life->Run(-1);
    _exit(1);
  }
  // Until it has read what was written, or has ended. Only ctest's own limit ends a test whose
  // daemon lives and reads nothing.
  static bool HasRead(const SegmentBuilder& job, pid_t daemon) {
    while (job.ring().released_slots.load() != job.ring().reserved_slots.load()) {
      siginfo_t ended{};
      if (waitid(P_PID, static_cast<id_t>(daemon), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
          ended.si_pid != 0)
        return false;
      usleep(10'000);
    }
    return true;
  }
  static void End(pid_t daemon) {
    kill(daemon, SIGKILL);
    waitpid(daemon, nullptr, 0);
  }
};

// What one write of a hundred takes at least, of so many, in nanoseconds.
int64_t P99OfWrites(SegmentBuilder& job) {
  constexpr size_t kWrites = 4'000;  // the ring has room for several times as many
  using Clock = std::chrono::steady_clock;
  std::vector<int64_t> took;
  took.reserve(kWrites);
  for (size_t i = 0; i < kWrites; ++i) {
    const auto begin = Clock::now();
    job.WriteValue("aten::log", "a");
    took.push_back(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count());
  }
  const auto p99 = took.begin() + kWrites * 99 / 100;
  std::nth_element(took.begin(), p99, took.end());
  return *p99;
}

// The least of several rounds: other processes make a write slower, and none faster.
TEST_F(StoppedDaemonTest, AWriteTakesNoLongerWhileItIsStopped) {
  SegmentBuilder job(options_.segment_dir, {.layout = kSegmentLayout, .nonce = 1});
  const pid_t daemon = Live();
  job.WriteValue("aten::log", "a");
  ASSERT_TRUE(HasRead(job, daemon));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t running = kMost, stopped = kMost, full = kMost;
  const int rounds = FaultRounds(5, 100);
  for (int i = 0; i < rounds; ++i) {
    running = std::min(running, P99OfWrites(job));
    ASSERT_TRUE(HasRead(job, daemon));
    ASSERT_EQ(kill(daemon, SIGSTOP), 0);
    stopped = std::min(stopped, P99OfWrites(job));
    const uint64_t dropped = job.dropped();
    while (job.dropped() == dropped) job.WriteValue("aten::log", "a");
    full = std::min(full, P99OfWrites(job));
    ASSERT_EQ(kill(daemon, SIGCONT), 0);
    ASSERT_TRUE(HasRead(job, daemon));
  }
  End(daemon);
  std::printf(
      "p99 of a write: %lld ns while the daemon runs, %lld ns stopped, %lld ns with a full"
      " ring\n",
      static_cast<long long>(running), static_cast<long long>(stopped),
      static_cast<long long>(full));
  constexpr int64_t kSlackNs = 1'000;  // the clock is read twice, and has its own grain
  EXPECT_LE(stopped, running + running / 10 + kSlackNs);
  EXPECT_LE(full, running + running / 10 + kSlackNs);
}

TEST_F(StoppedDaemonTest, TheJobWritesOnAndWhatDoesNotFitIsCounted) {
  SegmentBuilder job(options_.segment_dir, {.layout = kSegmentLayout, .nonce = 1});
  const pid_t daemon = Live();
  uint64_t written = job.WriteValue("aten::log", "a");
  ASSERT_TRUE(HasRead(job, daemon));
  ASSERT_EQ(kill(daemon, SIGSTOP), 0);
  const int rounds = FaultRounds(30'000, 3'000'000);
  for (int i = 0; i < rounds; ++i) written = job.WriteValue("aten::log", "a");
  ASSERT_EQ(kill(daemon, SIGCONT), 0);
  EXPECT_TRUE(HasRead(job, daemon));
  job.WriteValue("aten::exp", "after");
  ++written;
  EXPECT_TRUE(HasRead(job, daemon));
  End(daemon);
  job.Publish();
  Start();
  Tick(1'100);
  const RunFacts facts = FactsOf(1);
  EXPECT_GT(job.dropped(), 0u) << "the ring was to run full";
  // The first findings are kept beside the ring; here they are in both.
  EXPECT_EQ(TicketsOf(1) + job.dropped() + facts.state().records_thinned(), written);
  EXPECT_EQ(facts.state().records_dropped(), job.dropped());
  EXPECT_FALSE(facts.state().ended()) << "nobody was taken for dead";
  ExpectSoundStore();
}

}  // namespace
}  // namespace nanwatch
