// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/instance_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "proto/wire/naming.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

using testing::HasSubstr;

TEST(InstanceLockTest, ASecondDaemonLearnsWhoRunsAndSinceWhen) {
  TemporaryDirectory directory;
  FakeClock clock;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t other = fork();
  if (other == 0) {
    const Result<InstanceLock> lock = InstanceLock::Take(directory / "a.lock", "runs", clock);
    const char ok = lock.ok() ? 'y' : 'n';
    (void)!write(ready[1], &ok, 1);
    while (true) pause();
  }
  char ok = 0;
  ASSERT_EQ(read(ready[0], &ok, 1), 1);
  ASSERT_EQ(ok, 'y');
  const Result<InstanceLock> refused = InstanceLock::Take(directory / "a.lock", "runs", clock);
  EXPECT_EQ(refused.status().kind(), ErrorKind::kBusy);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("process " + std::to_string(other) + " since 2026-"));
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  EXPECT_TRUE(InstanceLock::Take(directory / "a.lock", "runs", clock).ok())
      << "the lock goes with its process";
}

TEST(InstanceLockTest, NoticesThatItsFileWasRemovedOrReplaced) {
  TemporaryDirectory directory;
  FakeClock clock;
  const Result<InstanceLock> lock = InstanceLock::Take(directory / "a.lock", "runs", clock);
  ASSERT_TRUE(lock.ok());
  EXPECT_TRUE(lock->StillInPlace());
  ASSERT_EQ(unlink((directory / "a.lock").c_str()), 0);
  EXPECT_FALSE(lock->StillInPlace());
}

}  // namespace
}  // namespace nanwatch
