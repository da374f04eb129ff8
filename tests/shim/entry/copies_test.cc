// SPDX-License-Identifier: Apache-2.0
// Several copies of the library in one process: one is awake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shim/entry/scene.h"

namespace nanwatch::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kOneWatch[] = "open ok\nduring threads=2 on_main=1 constructed=1\n";

struct TwoCopies : ::testing::Test {
  TwoCopies() {
    scene.Observer("2.11", "observer", "first");
    scene.Observer("2.11", "observer", "second");
  }
  Scene scene;
  const std::string first = scene.Library("first");
  const std::string second = scene.Library("second");
  const std::string torch = scene.TorchPackage("2.11.0");
};

TEST_F(TwoCopies, InThePreloadListTheFirstOneWatches) {
  Ran ran = scene.Host({"open", torch, "during", "said", "1", "alone"},
                       {{"LD_PRELOAD", first + ":" + second}});
  EXPECT_EQ(ran.out, kOneWatch);
  EXPECT_THAT(ran.log, ElementsAre(HasSubstr("library=" + first)));
}

TEST_F(TwoCopies, OfWhichOneCameLaterByDlopenTheEarlierOneWatches) {
  Ran ran = scene.Host(
      {"load", second, "open-by", second, torch, "during", "open", torch, "said", "1", "alone"},
      {{"LD_PRELOAD", first}});
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.log, ElementsAre(HasSubstr("library=" + first)));
}

TEST_F(TwoCopies, OpenedOneAfterTheOtherTheEarlierOneWatches) {
  Ran ran =
      scene.Run({NANWATCH_TEST_PROGRAMS "/entry_host", "load", first, "load", second, "open-by",
                 second, torch, "during", "open-by", first, torch, "said", "1", "alone"});
  EXPECT_EQ(ran.out,
            "open ok\nopen ok\nopen ok\nduring threads=1 on_main=1 constructed=1\nopen ok\n");
  EXPECT_THAT(ran.log, ElementsAre(HasSubstr("library=" + first)));
}

TEST_F(TwoCopies, UnderOtherFileNamesKnowEachOther) {
  const std::string one = scene.root() / "first/lib/one.so",
                    two = scene.root() / "second/lib/two.so";
  std::filesystem::rename(first, one);
  std::filesystem::rename(second, two);
  Ran ran = scene.Host({"open", torch, "during", "said", "1", "alone"},
                       {{"LD_PRELOAD", one + ":" + two}});
  EXPECT_EQ(ran.out, kOneWatch);
  EXPECT_THAT(ran.log, ElementsAre(HasSubstr("library=" + one)));
}

TEST_F(TwoCopies, ThatAreOneFileNamedTwiceAreOneCopy) {
  Ran ran = scene.Host({"open", torch, "during", "said", "1", "alone"},
                       {{"LD_PRELOAD", first + ":" + first}});
  EXPECT_EQ(ran.out, kOneWatch);
  EXPECT_THAT(ran.log, ElementsAre(HasSubstr("library=" + first)));
}

}  // namespace
}  // namespace nanwatch::test
