// SPDX-License-Identifier: Apache-2.0
// Processes that have nothing to do with torch are as they were.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shim/entry/scene.h"

namespace nanwatch::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

void ExpectSameWithAndWithout(const std::vector<std::string>& command) {
  Scene scene;
  Ran bare = scene.Run(command);
  Ran preloaded = scene.RunPreloaded(command);
  EXPECT_EQ(preloaded.status, bare.status);
  EXPECT_EQ(preloaded.out, bare.out);
  EXPECT_EQ(preloaded.err, bare.err);
  EXPECT_THAT(preloaded.log, IsEmpty());
}

TEST(Inert, TrueIsAsItWas) { ExpectSameWithAndWithout({"/bin/true"}); }
TEST(Inert, GitIsAsItWas) { ExpectSameWithAndWithout({"git", "--version"}); }
TEST(Inert, GccIsAsItWas) { ExpectSameWithAndWithout({"gcc", "--version"}); }

TEST(Inert, BashKeepsItsOutputErrorsAndStatus) {
  ExpectSameWithAndWithout({"bash", "-c", "echo out; echo err >&2; (exit 7); export A=1; exit 3"});
}

TEST(Inert, APipelineThatEndsBySignalKeepsItsStatus) {
  ExpectSameWithAndWithout({"bash", "-c", "kill -TERM $$"});
}

TEST(Inert, OpenFilesAreThoseOfTheBareProcess) {
  ExpectSameWithAndWithout({"bash", "-c", "cd /proc/self/fd; echo *"});
}

// An unprivileged user namespace needs a process with a single thread.
TEST(Inert, UnshareUserWorksAsWithout) { ExpectSameWithAndWithout({"unshare", "-U", "true"}); }

TEST(Inert, ThePreloadStaysInTheEnvironmentForChildren) {
  Scene scene;
  Ran ran = scene.RunPreloaded({"bash", "-c", "exec bash -c 'echo $LD_PRELOAD'"});
  EXPECT_EQ(ran.out, scene.Library() + "\n");
}

TEST(Inert, APythonWithoutTorchHasOneThreadAndItsModules) {
  Scene scene;
  scene.Observer("2.11");
  Ran ran =
      scene.RunPreloaded({NANWATCH_TEST_PYTHON, "-c",
                          "import ctypes, json, os, ssl, sqlite3, subprocess, multiprocessing\n"
                          "ctypes.CDLL('libm.so.6')\n"
                          "print(len(os.listdir('/proc/self/task')), "
                          "sqlite3.connect(':memory:').execute('select 1').fetchone())"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, "1 (1,)\n");
  EXPECT_EQ(ran.err, "");
  EXPECT_THAT(ran.log, IsEmpty());
}

TEST(Inert, AnEnvironmentInAFolderNamedTorchIsNoSign) {
  Scene scene;
  const std::string library = scene.root() / "torch/env/lib/libother.so";
  std::filesystem::create_directories(scene.root() / "torch/env/lib");
  std::filesystem::copy_file(scene.TorchWithoutVersion(), library);
  EXPECT_EQ(scene.Host({"open", library, "during"}).out,
            "open ok\nduring threads=1 on_main=1 constructed=1\n");
}

TEST(Inert, SwitchedOffItDoesNothing) {
  Scene scene;
  scene.Observer("2.11");
  Ran ran =
      scene.Host({"open", scene.TorchPackage("2.11.0"), "during", "threads"}, {{"NANWATCH", "0"}});
  EXPECT_EQ(ran.out, "open ok\nduring threads=1 on_main=1 constructed=1\nthreads 1\n");
  EXPECT_THAT(ran.log, IsEmpty());
}

TEST(Inert, ADlopenThatFailsSaysTheLoadersOwnReason) {
  Scene scene;
  const std::vector<std::string> words = {NANWATCH_TEST_PROGRAMS "/entry_host", "open",
                                          "/no/libtorch.so"};
  Ran bare = scene.Run(words);
  EXPECT_THAT(bare.out, HasSubstr("/no/libtorch.so"));
  EXPECT_EQ(scene.RunPreloaded(words).out, bare.out);
}

// In a process with raised privileges the loader drops a preload with a path, so the library is
// opened there by hand.
TEST(Inert, InAProcessWithRaisedPrivilegesItDoesNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "making a setuid program needs root";
  Scene scene;
  constexpr unsigned kNobody = 65534;
  const std::string torch = scene.TorchPackage("2.11.0"), library = scene.Library();
  const std::string host = scene.root() / "host";
  std::filesystem::copy_file(NANWATCH_TEST_PROGRAMS "/entry_host", host);
  const std::vector<std::string> command = {host, "secure", "open-by", library, torch, "during"};

  Ran ordinary = scene.Run(command, {}, kNobody);
  EXPECT_EQ(ordinary.out, "secure 0\nopen ok\nduring threads=2 on_main=1 constructed=1\n");

  std::filesystem::permissions(host, std::filesystem::perms(04755));
  Ran raised = scene.Run(command, {}, kNobody);
  if (raised.out.starts_with("secure 0")) GTEST_SKIP() << "the file system ignores setuid";
  EXPECT_EQ(raised.out, "secure 1\nopen ok\nduring threads=1 on_main=1 constructed=1\n");
}

}  // namespace
}  // namespace nanwatch::test
