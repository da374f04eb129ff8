// SPDX-License-Identifier: Apache-2.0
// The lock by which the daemon knows that a job lives.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>

#include "tests/shim/host/segment_place.h"

namespace nanwatch {
namespace {

TEST(SegmentLock, IsHeldByTheProcessThatMadeTheSegment) {
  SegmentPlace place;
  Segment* segment = place.Create();
  ASSERT_NE(segment, nullptr);
  EXPECT_EQ(LockHolder(segment->path()), getpid());
}

TEST(SegmentLock, IsFreeOnceTheJobIsKilledAlthoughAForkedChildOfItLivesOn) {
  SegmentPlace place;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t job = fork();
  ASSERT_GE(job, 0);
  if (job == 0) {
    Segment* segment = place.Create();
    const pid_t child = fork();  // a DataLoader worker, say
    if (child == 0) {
      for (;;) pause();
    }
    const std::string said =
        std::to_string(child) + " " + (segment != nullptr ? segment->path() : "");
    (void)!write(ends[1], said.data(), said.size() + 1);
    for (;;) pause();
  }
  char said[512] = "";
  ASSERT_GT(read(ends[0], said, sizeof said), 0);
  char* path = nullptr;
  const auto child = static_cast<pid_t>(std::strtol(said, &path, 10));
  ++path;
  ASSERT_GT(child, 0);
  EXPECT_EQ(LockHolder(path), job);
  kill(job, SIGKILL);
  waitpid(job, nullptr, 0);
  EXPECT_EQ(kill(child, 0), 0) << "the child should live on";
  EXPECT_EQ(LockHolder(path), 0);
  kill(child, SIGKILL);
  close(ends[0]);
  close(ends[1]);
}

TEST(SegmentLock, SurvivesAForkedChildThatClosesEverything) {
  SegmentPlace place;
  Segment* segment = place.Create();
  ASSERT_NE(segment, nullptr);
  const int fd = DescriptorOf(segment->path());
  InChild([fd]() -> std::string {
    close(fd);
    return "closed";
  });
  EXPECT_EQ(LockHolder(segment->path()), getpid());
}

TEST(SegmentLock, IsTakenAnewWhenTheProgramClosedOurDescriptor) {
  SegmentPlace place;
  Segment* segment = place.Create();
  ASSERT_NE(segment, nullptr);
  const int fd = DescriptorOf(segment->path());
  close(fd);
  EXPECT_EQ(LockHolder(segment->path()), 0);
  EXPECT_TRUE(segment->StillThere());
  EXPECT_EQ(LockHolder(segment->path()), getpid());
}

TEST(SegmentLock, IsTakenAnewWhenTheProgramOpenedAndClosedTheFile) {
  SegmentPlace place;
  Segment* segment = place.Create();
  ASSERT_NE(segment, nullptr);
  close(open(segment->path(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(LockHolder(segment->path()), 0) << "POSIX says so; if not, this test is needless";
  EXPECT_TRUE(segment->StillThere());
  EXPECT_EQ(LockHolder(segment->path()), getpid());
}

TEST(SegmentLock, LeavesADescriptorAloneThatTheProgramReusedTheNumberOf) {
  SegmentPlace place;
  Segment* segment = place.Create();
  ASSERT_NE(segment, nullptr);
  const int fd = DescriptorOf(segment->path());
  const int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(dup3(other, fd, O_CLOEXEC), fd);
  EXPECT_TRUE(segment->StillThere());
  EXPECT_EQ(LockHolder(segment->path()), getpid());
  unlink(segment->path());
  EXPECT_FALSE(segment->StillThere());
  EXPECT_TRUE(segment->Remake().ok);
  struct stat status {};
  ASSERT_EQ(fstat(fd, &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode)) << "the program's own file was closed";
  close(fd);
  close(other);
}

}  // namespace
}  // namespace nanwatch
