// SPDX-License-Identifier: Apache-2.0
// The library comes by dlopen into a process that has its torch: it waits until it is told how.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "shim/entry/attach.h"
#include "tests/shim/entry/scene.h"

namespace nanwatch::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Late : ::testing::Test {
  // The host program, without the library preloaded.
  Ran Bare(std::vector<std::string> words, std::map<std::string, std::string> environment = {}) {
    words.insert(words.begin(), NANWATCH_TEST_PROGRAMS "/entry_host");
    return scene.Run(words, std::move(environment));
  }
  // What a file holds.
  std::string Text(const std::string& path) const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  std::string Answers() const {
    const std::string path = scene.root() / "answers";
    std::ofstream(path).flush();
    return path;
  }

  Scene scene;
  const std::string library = scene.Library();
  const std::string torch = scene.TorchPackage("2.11.0");
};

TEST_F(Late, DoesNothingBeforeItIsTold) {
  scene.Observer("2.11");
  Ran ran = Bare({"open", torch, "load", library, "threads"});
  EXPECT_EQ(ran.out, "open ok\nopen ok\nthreads 1\n");
  EXPECT_THAT(ran.log, IsEmpty());
}

TEST_F(Late, GivesTheObserverTheLevelAndTheDirectoryThatItIsTold) {
  scene.Observer("2.11");
  Ran ran = Bare(
      {"open", torch, "attach", library, "idle", "/over/there", Answers(), "said", "1", "active"},
      {{"NANWATCH_LEVEL", "full"}, {"NANWATCH_DIR", "/elsewhere"}});
  EXPECT_EQ(ran.out, "open ok\nattach 0\nactive 1\n");
  EXPECT_THAT(ran.log, ElementsAre(AllOf(HasSubstr("late_level=idle"),
                                         HasSubstr("late_directory=/over/there"))));
  EXPECT_THAT(Text(scene.root() / "answers"), HasSubstr("nanwatch: observer torch=2.11.0 "));
}

TEST_F(Late, WorksOnce) {
  scene.Observer("2.11");
  const std::string answers = Answers();
  Ran ran = Bare({"open", torch, "attach", library, "idle", "/d", answers, "said", "1", "attach",
                  library, "full", "/d", answers, "alone"});
  EXPECT_EQ(ran.out, "open ok\nattach 0\nattach 3\n");
  EXPECT_EQ(ran.log.size(), 1u);
}

TEST_F(Late, SaysInTheAnswersThatTheProcessIsNotGoingToBeWatched) {
  const std::string answers = Answers();
  Ran ran = Bare({"open", torch, "attach", library, "idle", "/d", answers, "alone"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(Text(answers), AllOf(HasSubstr("nanwatch: found torch 2.11.0, but no observer"),
                                   HasSubstr("\noff\n")));
}

TEST_F(Late, MakesNoFileOfAnswersThatIsGone) {
  const std::string answers = scene.root() / "gone";
  (void)Bare({"open", torch, "attach", library, "idle", "/d", answers, "alone"});
  EXPECT_FALSE(std::filesystem::exists(answers));
}

TEST_F(Late, IsRefusedWithoutTorchAndMayBeTriedAgain) {
  scene.Observer("2.11");
  const std::string answers = Answers();
  Ran ran = Bare({"attach", library, "idle", "/d", answers, "open", torch, "attach", library,
                  "idle", "/d", answers, "said", "1"});
  EXPECT_EQ(ran.out, "attach 4\nopen ok\nattach 0\n");
}

TEST_F(Late, KeepsOutWhereItIsSwitchedOff) {
  scene.Observer("2.11");
  Ran ran =
      Bare({"open", torch, "attach", library, "idle", "/d", "", "threads"}, {{"NANWATCH", "0"}});
  EXPECT_EQ(ran.out, "open ok\nattach 1\nthreads 1\n");
}

TEST_F(Late, RefusesTextsThatItHasNoRoomFor) {
  Ran ran = Bare({"open", torch, "attach", library, "a-level-of-a-long-name", "/d", "", "attach",
                  library, "idle", std::string(5000, 'x'), ""});
  EXPECT_EQ(ran.out, "open ok\nattach 5\nattach 5\n");
}

TEST_F(Late, LeavesAProcessAloneThatAnotherCopyWatches) {
  scene.Observer("2.11");
  const std::string second = scene.Library("second");
  Ran ran = scene.Host({"open", torch, "said", "1", "attach", second, "idle", "/d", "", "alone"});
  EXPECT_EQ(ran.out, "open ok\nattach 3\n");
  EXPECT_EQ(ran.log.size(), 1u);
}

TEST_F(Late, LeavesForkedChildrenSilent) {
  scene.Observer("2.11");
  Ran ran = Bare({"open", torch, "attach", library, "idle", "/d", "", "said", "1", "active", "fork",
                  "active", "threads"});
  EXPECT_EQ(ran.out, "open ok\nattach 0\nactive 1\nactive 0\nthreads 1\n");
}

}  // namespace
}  // namespace nanwatch::test
