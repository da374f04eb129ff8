// SPDX-License-Identifier: Apache-2.0
// Torch is found, its version read, and the observer for it started; or one line says why not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/shim/entry/scene.h"

namespace nanwatch::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// What the fake observer says when it is started for `version`.
auto StartedFor(const std::string& version) {
  return AllOf(StartsWith("nanwatch: observer torch=" + version + " "),
               HasSubstr(" constructed=1 "), HasSubstr(" interface=1 bytes_right=1 "),
               HasSubstr(" signals_open=0 "));
}

// Python that waits for a whole line in the log: the file is there before its line is.
const std::string kAwaitLine =
    "import os, time\n"
    "log, end = os.environ['NANWATCH_LOG'], time.monotonic() + 60\n"
    "while time.monotonic() < end and not (os.path.exists(log) and "
    "open(log).read().endswith('\\n')):\n"
    "    time.sleep(0.002)\n";

TEST(Start, FollowsAfterLibtorchsConstructorHasEnded) {
  Scene scene;
  scene.Observer("2.11");
  Ran ran =
      scene.Host({"open", scene.TorchPackage("2.11.0+cu130"), "during", "said", "1", "active"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.out, "open ok\nduring threads=2 on_main=1 constructed=1\nactive 1\n");
  EXPECT_THAT(ran.log, ElementsAre(AllOf(StartedFor("2.11.0+cu130"),
                                         HasSubstr("library=" + scene.Library() + " "))));
}

TEST(Start, WorksInPython) {
  Scene scene;
  scene.Observer("2.11");
  Ran ran = scene.RunPreloaded({NANWATCH_TEST_PYTHON, "-c",
                                "import ctypes, sys\n"
                                "ctypes.CDLL(sys.argv[1])\n" +
                                    kAwaitLine + "print('done')",
                                scene.TorchPackage("2.11.0+cpu")});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, "done\n");
  EXPECT_THAT(ran.log, ElementsAre(StartedFor("2.11.0+cpu")));
}

TEST(Start, WorksInAProgramLinkedToLibtorch) {
  Scene scene;
  scene.Observer("2.12");
  Ran ran =
      scene.RunPreloaded({NANWATCH_TEST_PROGRAMS "/entry_linked_host", "during", "said", "1"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.out, "during threads=1 on_main=1 constructed=1\n");
  EXPECT_THAT(ran.log, ElementsAre(StartedFor("2.12.0")));
}

// The preload list can put our constructor first; libtorch's must still run once, on the main
// thread.
TEST(Start, WorksInALinkedProgramWhoseLibtorchIsConstructedAfterUs) {
  Scene scene;
  scene.Observer("2.12");
  const std::string torch = NANWATCH_TEST_PROGRAMS "/linked/torch/lib/libtorch_cpu.so";
  Ran ran = scene.RunPreloaded({NANWATCH_TEST_PROGRAMS "/entry_linked_host", "during", "said", "1"},
                               {{"LD_PRELOAD", torch + ":" + scene.Library()}});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.out, "during threads=1 on_main=1 constructed=1\n");
  EXPECT_THAT(ran.log, ElementsAre(StartedFor("2.12.0")));
}

TEST(Start, ReadsTheVersionOfTheLibtorchArchive) {
  Scene scene;
  scene.Observer("2.6");
  EXPECT_THAT(scene.Host({"open", scene.TorchArchive("2.6.0+cpu"), "said", "1"}).log,
              ElementsAre(StartedFor("2.6.0+cpu")));
}

TEST(Start, ReadsTheVersionOfADistributionFromTheFileName) {
  Scene scene;
  scene.Observer("2.6");
  EXPECT_THAT(scene.Host({"open", scene.TorchOfDistribution("2.6"), "said", "1"}).log,
              ElementsAre(StartedFor("2.6")));
}

TEST(Start, FollowsALinkToLibtorch) {
  Scene scene;
  scene.Observer("2.11");
  const std::filesystem::path link = scene.root() / "links/libtorch_cpu.so";
  std::filesystem::create_directories(link.parent_path());
  std::filesystem::create_symlink(scene.TorchPackage("2.11.0"), link);
  EXPECT_THAT(scene.Host({"open", link, "said", "1"}).log, ElementsAre(StartedFor("2.11.0")));
}

TEST(Start, FindsObserversBesideWhatALinkToTheLibraryNames) {
  Scene scene;
  scene.Observer("2.11");
  const std::string link = scene.root() / "libnanwatch.so";
  std::filesystem::create_symlink(scene.Library(), link);
  EXPECT_THAT(
      scene.Host({"open", scene.TorchPackage("2.11.0"), "said", "1"}, {{"LD_PRELOAD", link}}).log,
      ElementsAre(StartedFor("2.11.0")));
}

TEST(Start, WorksWithARelativePreloadInAProgramThatChangesItsFolder) {
  Scene scene;
  scene.Observer("2.11");
  scene.Library();
  Ran ran = scene.Run(
      {"bash", "-c", "cd \"$0/prefix\" && LD_PRELOAD=lib/libnanwatch.so \"$1\" open \"$2\" said 1",
       scene.root(), NANWATCH_TEST_PROGRAMS "/entry_host", scene.TorchPackage("2.11.0")});
  EXPECT_THAT(ran.log, ElementsAre(AllOf(StartedFor("2.11.0"), HasSubstr("library=/"))));
}

TEST(Start, HappensOnceHoweverOftenTorchIsOpened) {
  Scene scene;
  scene.Observer("2.11");
  const std::string torch = scene.TorchPackage("2.11.0");
  Ran ran =
      scene.Host({"open", torch, "said", "1", "open", torch, "open", "libtorch_none.so", "alone"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.log, ElementsAre(StartedFor("2.11.0")));
}

TEST(Start, WithoutAnObserverForThisTorchOneLineSaysHowToBuildOneAndTheJobGoesOn) {
  Scene scene;
  Ran ran = scene.Host({"open", scene.TorchPackage("2.5.1+cu121"), "alone", "exit", "5"},
                       {{"NANWATCH_LOG", "stderr"}});
  EXPECT_EQ(ran.status, 5);
  EXPECT_EQ(ran.out, "open ok\n");
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  EXPECT_THAT(ran.err, AllOf(StartsWith("nanwatch: found torch 2.5.1+cu121"),
                             HasSubstr("libnanwatch_observer-2.5.so"),
                             HasSubstr("bin/nanwatch build-observer --python PY")));
}

// In a virtual environment /proc/self/exe is the Python outside, which has no torch.
TEST(Start, WithoutAnObserverTheLineNamesThePythonOfTheTorchWhereItLiesBesideIt) {
  Scene scene;
  (void)scene.TorchPackage("2.5.1");
  const std::filesystem::path environment = scene.root() / "venv";
  const std::filesystem::path packages = environment / "lib/python3.11/site-packages";
  std::filesystem::create_directories(packages.parent_path());
  std::filesystem::rename(scene.root() / "site-packages", packages);
  const std::vector<std::string> open = {"open", packages / "torch/lib/libtorch_cpu.so", "alone"};
  EXPECT_THAT(scene.Host(open, {{"NANWATCH_LOG", "stderr"}}).err,
              HasSubstr((scene.root() / "prefix/bin/nanwatch").string() +
                        " build-observer --python PY, where PY is the Python that has this "
                        "torch"));

  const std::filesystem::path python = environment / "bin/python3.11";
  std::filesystem::create_directories(python.parent_path());
  std::filesystem::copy_file("/bin/true", python);
  EXPECT_THAT(scene.Host(open, {{"NANWATCH_LOG", "stderr"}}).err,
              EndsWith(" build-observer --python " + python.string() + "\n"));
}

TEST(Start, OfATorchWithoutAnyVersionIsRefusedInOneLine) {
  Scene scene;
  scene.Observer("2.11");
  const std::string torch = scene.TorchWithoutVersion();
  Ran ran = scene.Host({"open", torch, "alone", "exit", "5"});
  EXPECT_EQ(ran.status, 5);
  EXPECT_THAT(ran.log, ElementsAre(AllOf(HasSubstr(torch), HasSubstr("is unknown ("))));
}

TEST(Start, OfAnObserverThatDoesNotLoadIsGivenUpWithTheLoadersReason) {
  Scene scene;
  scene.Observer("2.11", "observer_unloadable");
  Ran ran = scene.Host({"open", scene.TorchPackage("2.11.0"), "alone", "exit", "5"});
  EXPECT_EQ(ran.status, 5);
  EXPECT_THAT(ran.log, ElementsAre(HasSubstr("symbol_that_this_libtorch_lacks")));
}

TEST(Start, OfALibraryThatIsNoObserverIsGivenUpInOneLine) {
  Scene scene;
  scene.Observer("2.11", "private/libprivate_inner");
  Ran ran = scene.Host({"open", scene.TorchPackage("2.11.0"), "alone", "exit", "5"});
  EXPECT_EQ(ran.status, 5);
  EXPECT_THAT(ran.log, ElementsAre(HasSubstr("libnanwatch_observer-2.11.so is not an observer")));
}

TEST(Start, LeavesTheWordToAnObserverThatStepsDown) {
  Scene scene;
  scene.Observer("2.11");
  Ran ran = scene.Host({"open", scene.TorchPackage("2.11.0"), "alone", "exit", "5"},
                       {{"FAKE_OBSERVER_STEPS_DOWN", "1"}});
  EXPECT_EQ(ran.status, 5);
  EXPECT_THAT(ran.log, ElementsAre("nanwatch: the fake observer steps down"));
}

TEST(Start, LeavesCompileWorkersAlone) {
  Scene scene;
  scene.Observer("2.11");
  Ran ran = scene.Host(
      {"open", scene.TorchPackage("2.11.0"), "alone", "-m", "torch._inductor.compile_worker"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.log, IsEmpty());
}

TEST(Start, HappensForTheForkServerWhoseChildrenMayTrain) {
  Scene scene;
  scene.Observer("2.11");
  Ran ran = scene.Host({"open", scene.TorchPackage("2.11.0"), "said", "1", "-c",
                        "from multiprocessing.forkserver import main; main(3, 5, [], **{})"});
  EXPECT_THAT(ran.log, ElementsAre(StartedFor("2.11.0")));
}

TEST(Start, WritesNoMoreAndDiesOfNothingWhenStderrIsAPipeThatNobodyReads) {
  Scene scene;
  Ran ran = scene.Run(
      {"bash", "-c",
       "LD_PRELOAD=\"$0\" NANWATCH_LOG=stderr \"$1\" open \"$2\" alone 2> >(exec true); echo $?",
       scene.Library(), NANWATCH_TEST_PROGRAMS "/entry_host", scene.TorchPackage("2.5.0")});
  EXPECT_EQ(ran.out, "open ok\n0\n");
}

// The preloaded library meets the torch that the observer is built for.
TEST(Start, FindsTheRealTorchAndItsFullVersion) {
  Scene scene;
  scene.Observer(NANWATCH_TORCH_MINOR);
  Ran ran = scene.RunPreloaded(
      {NANWATCH_TEST_PYTHON, "-c", "import torch\n" + kAwaitLine + "print(torch.__version__)"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  ASSERT_EQ(ran.log.size(), 1u);
  const std::string version = ran.out.substr(0, ran.out.find('\n'));
  EXPECT_THAT(ran.log[0], StartsWith("nanwatch: observer torch=" + version + " "));
}

}  // namespace
}  // namespace nanwatch::test
