// SPDX-License-Identifier: Apache-2.0
// Which processes belong to one place, with real namespaces.
#include "proto/wire/place.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace nanwatch::wire {
namespace {

constexpr int kNotAllowed = 77;

// What a child says of itself, and what this process says of it meanwhile.
struct Seen {
  int status = 0;
  Place inside;
  Place outside;
};

// `enter` brings the child to its place: 0, or an exit status. With `as_init` it is process 1 of a
// pid namespace that the child makes.
template <typename Enter>
Seen See(Enter enter, bool as_init = false) {
  int up[2];
  int down[2];
  int numbers[2];  // a pipe of its own: either of the two may write first
  if (pipe(up) != 0 || pipe(down) != 0 || pipe(numbers) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    close(down[1]);
    if (as_init && unshare(CLONE_NEWPID) != 0) _exit(kNotAllowed);
    const pid_t inner = as_init ? fork() : 0;
    if (inner > 0) {
      int status = 0;
      if (write(numbers[1], &inner, sizeof inner) != sizeof inner) _exit(1);
      waitpid(inner, &status, 0);
      _exit(WEXITSTATUS(status));
    }
    if (const int refused = enter(); refused != 0) _exit(refused);
    const Place place = PlaceOfProcess(0);
    char go = 0;
    const bool told = write(up[1], &place, sizeof place) == sizeof place;
    _exit(told && read(down[0], &go, 1) == 0 ? 0 : 1);
  }
  close(up[1]);
  close(down[0]);
  close(numbers[1]);
  Seen seen;
  pid_t inner = child;
  if (as_init && read(numbers[0], &inner, sizeof inner) != sizeof inner) inner = 0;
  if (read(up[0], &seen.inside, sizeof seen.inside) == sizeof seen.inside)
    seen.outside = PlaceOfProcess(inner);
  close(down[1]);
  waitpid(child, &seen.status, 0);
  close(up[0]);
  close(numbers[0]);
  seen.status = WEXITSTATUS(seen.status);
  return seen;
}

int MountOwnProc() {
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return kNotAllowed;
  return mount("proc", "/proc", "proc", 0, nullptr) == 0 ? 0 : kNotAllowed;
}

int EnterPrivateTmp() {
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return kNotAllowed;
  return mount("tmpfs", "/tmp", "tmpfs", 0, nullptr) == 0 ? 0 : kNotAllowed;
}

// A root of its own, with the host's processes in its /proc: docker run --pid=host.
int EnterOwnRoot() {
  if (const int refused = EnterPrivateTmp(); refused != 0) return refused;
  if (mkdir("/tmp/proc", 0755) != 0) return kNotAllowed;
  if (mount("/proc", "/tmp/proc", nullptr, MS_BIND, nullptr) != 0) return kNotAllowed;
  return chroot("/tmp") == 0 && chdir("/") == 0 ? 0 : kNotAllowed;
}

TEST(PlaceTest, AChildIsWhereItsParentIs) {
  const Place here = PlaceOfProcess(0);
  const Seen child = See([] { return 0; });
  ASSERT_EQ(child.status, 0);
  EXPECT_NE(here.pid_namespace, 0u);
  EXPECT_EQ(child.inside.key, here.key);
  EXPECT_EQ(child.outside.key, here.key);
  EXPECT_EQ(PlaceOfProcess(getpid()).key, here.key);
}

TEST(PlaceTest, TheHostIsTheFirstPidNamespaceWithTheRootOfProcessOne) {
  const Place here = PlaceOfProcess(0);
  if (here.pid_namespace != kFirstPidNamespace) {
    EXPECT_NE(here.key, 0u);
    GTEST_SKIP() << "this is a container";
  }
  struct stat own {};
  struct stat first {};
  if (stat("/", &own) != 0 || stat("/proc/1/root/", &first) != 0)
    GTEST_SKIP() << "the root of process 1 is not to be seen";
  EXPECT_EQ(here.key == 0, own.st_dev == first.st_dev && own.st_ino == first.st_ino);
}

TEST(PlaceTest, AMountNamespaceOfItsOwnIsTheSamePlace) {
  const Seen service = See(EnterPrivateTmp);
  if (service.status == kNotAllowed) GTEST_SKIP() << "no mount namespace may be made here";
  ASSERT_EQ(service.status, 0);
  EXPECT_EQ(service.inside.key, PlaceOfProcess(0).key);
  EXPECT_EQ(service.outside.key, PlaceOfProcess(0).key);
}

TEST(PlaceTest, AnotherPidNamespaceIsAnotherPlaceAndSeenSoFromOutside) {
  const Seen one = See(MountOwnProc, /*as_init=*/true);
  if (one.status == kNotAllowed) GTEST_SKIP() << "no pid namespace may be made here";
  ASSERT_EQ(one.status, 0);
  EXPECT_NE(one.inside.key, 0u);
  EXPECT_NE(one.inside.key, PlaceOfProcess(0).key);
  EXPECT_EQ(one.outside.key, one.inside.key);
  EXPECT_EQ(one.outside.pid_namespace, one.inside.pid_namespace);
}

TEST(PlaceTest, APidNamespaceThatGetsTheNumberOfOneThatEndedIsNotTheSamePlace) {
  const Seen one = See(MountOwnProc, /*as_init=*/true);
  if (one.status == kNotAllowed) GTEST_SKIP() << "no pid namespace may be made here";
  // Start times are counted in hundredths of a second.
  usleep(20'000);
  const Seen two = See(MountOwnProc, /*as_init=*/true);
  ASSERT_EQ(one.status, 0);
  ASSERT_EQ(two.status, 0);
  EXPECT_NE(one.inside.key, two.inside.key);
}

TEST(PlaceTest, AnotherRootIsAnotherPlaceAlsoAmongTheHostsProcesses) {
  const Seen container = See(EnterOwnRoot);
  if (container.status == kNotAllowed) GTEST_SKIP() << "no root of its own may be made here";
  ASSERT_EQ(container.status, 0);
  EXPECT_NE(container.inside.key, 0u);
  EXPECT_NE(container.inside.key, PlaceOfProcess(0).key);
  EXPECT_EQ(container.outside.key, container.inside.key);
}

TEST(PlaceTest, NamesOfTheHostAreThePlainOnes) {
  EXPECT_STREQ(DefaultDirectoryOf(1000, 0).path, "/dev/shm/nanwatch-1000");
  EXPECT_STREQ(DefaultDirectoryOf(0, 0x3f9c01d2).path, "/dev/shm/nanwatch-0-3f9c01d2");
  EXPECT_STREQ(DaemonLockNameOf(0).text, kDaemonLock);
  EXPECT_STREQ(DaemonLockNameOf(7).text, "daemon-00000007.lock");
}

}  // namespace
}  // namespace nanwatch::wire
