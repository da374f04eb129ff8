// SPDX-License-Identifier: Apache-2.0
// Children: forked ones are silent without any handler, and can find a torch of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shim/entry/scene.h"

namespace nanwatch::test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Fork : ::testing::Test {
  Fork() { scene.Observer("2.11"); }
  Scene scene;
  const std::string torch = scene.TorchPackage("2.11.0");
};

TEST_F(Fork, LeavesTheChildWithAClearedWord) {
  Ran ran = scene.Host({"open", torch, "said", "1", "active", "fork", "active"});
  EXPECT_EQ(ran.out, "open ok\nactive 1\nactive 0\n");
  EXPECT_THAT(ran.log.at(0), HasSubstr("wiped_by_kernel=1"));
}

TEST_F(Fork, ByTheBareSystemCallLeavesTheChildWithAClearedWord) {
  Ran ran = scene.Host({"open", torch, "said", "1", "active", "clone", "active"});
  EXPECT_EQ(ran.out, "open ok\nactive 1\nactive 0\n");
}

TEST_F(Fork, OnAnOldKernelClearsTheWordByAHandlerAndTellsTheObserver) {
  Ran ran = scene.Host({"old-kernel", "open", torch, "said", "1", "active", "fork", "active"});
  if (ran.status == 96) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(ran.out, "open ok\nactive 1\nactive 0\n");
  EXPECT_THAT(ran.log.at(0), HasSubstr("wiped_by_kernel=0"));
}

TEST_F(Fork, DoesNotStartTheInheritedObserverAgain) {
  Ran ran = scene.Host({"open", torch, "said", "1", "alone", "fork", "open", torch, "open",
                        "libtorch_none.so", "threads"});
  EXPECT_THAT(ran.out, HasSubstr("threads 1\n"));
  EXPECT_THAT(ran.log, SizeIs(1));
}

TEST_F(Fork, BeforeTorchLetsTheChildFindIt) {
  Ran ran = scene.Host({"fork", "pid", "open", torch, "said", "1"});
  EXPECT_EQ(ran.status, 0);
  const std::string pid = ran.out.substr(4, ran.out.find('\n') - 4);
  EXPECT_THAT(ran.log.at(0), HasSubstr(" pid=" + pid + " "));
}

// The parent's thread is looking for torch and does not exist in the child.
TEST_F(Fork, WhileTheParentWatchesLetsTheChildWatchForItself) {
  Ran ran = scene.Host({"open", "libtorch_none.so", "threads", "fork", "threads", "pid", "open",
                        torch, "during", "said", "1"});
  EXPECT_EQ(ran.status, 0) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("threads 2\nthreads 1\npid "));
  EXPECT_THAT(ran.out, HasSubstr("during threads=2 on_main=1 constructed=1\n"));
  const std::size_t at = ran.out.find("pid ") + 4;
  EXPECT_THAT(ran.log.at(0),
              HasSubstr(" pid=" + ran.out.substr(at, ran.out.find('\n', at) - at) + " "));
}

}  // namespace
}  // namespace nanwatch::test
