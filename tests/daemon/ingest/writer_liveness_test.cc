// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/writer_liveness.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "daemon/base/unique_fd.h"
#include "tests/fakes/segment_builder.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

class WriterLivenessTest : public testing::Test {
 protected:
  bool Lives(uint64_t heartbeat_ns = 0, uint64_t now_ns = 1) {
    return liveness_.Lives(fd_.get(), header_, heartbeat_ns, now_ns);
  }
  void Use(const SegmentBuilder& job) {
    header_ = job.header();
    fd_ = UniqueFd(open(job.path().c_str(), O_RDWR | O_CLOEXEC));
  }

  TemporaryDirectory directory_;
  HostIdentity self_ = HostIdentity::Current();
  WriterLiveness liveness_{self_};
  wire::SegmentHeader header_{};
  UniqueFd fd_;
};

TEST_F(WriterLivenessTest, AProcessWithTheSameNumberAndStartTimeLives) {
  IdleProcess process;
  SegmentBuilder job(directory_.path(), {.pid = process.pid()});
  Use(job);
  EXPECT_TRUE(Lives());
  process.Kill();
  EXPECT_FALSE(Lives());
}

TEST_F(WriterLivenessTest, ANumberThatWasGivenToAnotherProcessDoesNotLive) {
  SegmentBuilder job(directory_.path(), {.dead = true});
  Use(job);
  EXPECT_FALSE(Lives());
}

TEST_F(WriterLivenessTest, WhoeverHoldsTheLockLives) {
  SegmentBuilder job(directory_.path(), {.dead = true});
  Use(job);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_len = 1;
    const int fd = open(job.path().c_str(), O_RDWR);
    const char ok = fcntl(fd, F_SETLK, &lock) == 0 ? 'y' : 'n';
    (void)!write(ready[1], &ok, 1);
    while (true) pause();
  }
  char ok = 0;
  ASSERT_EQ(read(ready[0], &ok, 1), 1);
  ASSERT_EQ(ok, 'y');
  EXPECT_TRUE(Lives());
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  EXPECT_FALSE(Lives());
}

TEST_F(WriterLivenessTest, AProcessOfAnEarlierBootDoesNotLive) {
  SegmentBuilder job(directory_.path(), {});
  Use(job);
  header_.boot_id[0] ^= 1;
  EXPECT_FALSE(Lives());
}

TEST_F(WriterLivenessTest, AnotherHostLivesAsLongAsItsHeartbeatMoves) {
  SegmentBuilder job(directory_.path(), {});
  Use(job);
  header_.boot_id[0] ^= 1;
  std::strcpy(header_.host, "elsewhere");
  EXPECT_TRUE(Lives(/*heartbeat_ns=*/5, /*now_ns=*/1));
  EXPECT_TRUE(Lives(6, kHeartbeatOldNs));
  EXPECT_FALSE(Lives(6, 3 * kHeartbeatOldNs));
}

TEST_F(WriterLivenessTest, AnotherPidNamespaceLivesAsLongAsItsHeartbeatMoves) {
  SegmentBuilder job(directory_.path(), {.dead = true});
  Use(job);
  header_.pid_namespace += 1;
  EXPECT_TRUE(Lives(5, 1));
  EXPECT_FALSE(Lives(5, 2 * kHeartbeatOldNs));
}

TEST(ProcessStartTicksTest, AZombieHasNone) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(ProcessStartTicks(child), 0u);
  waitpid(child, nullptr, 0);
  EXPECT_NE(ProcessStartTicks(getpid()), 0u);
}

}  // namespace
}  // namespace nanwatch
