// SPDX-License-Identifier: Apache-2.0
// The exported dlopen does not show.
#include <gtest/gtest.h>

#include "tests/shim/entry/scene.h"

namespace nanwatch::test {
namespace {

class Runpath : public ::testing::TestWithParam<const char*> {};

TEST_P(Runpath, OfTheCallerOfDlopenIsKept) {
  Scene scene;
  Ran ran =
      scene.Host({"call", std::string(NANWATCH_TEST_PROGRAMS "/") + GetParam(), "open_private"});
  EXPECT_EQ(ran.out, "private library found\n");
}

TEST_P(Runpath, OfTheCallerIsKeptWhenTheFolderNamesTorch) {
  Scene scene;
  const std::filesystem::path folder = scene.root() / "torch";
  std::filesystem::create_directories(folder / "private");
  std::filesystem::copy_file(std::string(NANWATCH_TEST_PROGRAMS "/") + GetParam(),
                             folder / "libouter.so");
  std::filesystem::copy_file(NANWATCH_TEST_PROGRAMS "/private/libprivate_inner.so",
                             folder / "private/libprivate_inner.so");
  EXPECT_EQ(scene.Host({"call", folder / "libouter.so", "open_private"}).out,
            "private library found\n");
}

INSTANTIATE_TEST_SUITE_P(Levels, Runpath, ::testing::Values("libouter_O0.so", "libouter_O2.so"),
                         [](const auto& level) { return std::string(level.param).substr(9, 2); });

class Composite : public ::testing::TestWithParam<const char*> {};

TEST_P(Composite, PreloadStillFindsTorch) {
  Scene scene;
  scene.Observer("2.11");
  std::string preload = GetParam();
  preload.replace(preload.find('%'), 1, scene.Library());
  Ran ran =
      scene.Host({"open", scene.TorchPackage("2.11.0"), "said", "1"}, {{"LD_PRELOAD", preload}});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.out, "open ok\n");
  EXPECT_EQ(ran.err, "");
}

INSTANTIATE_TEST_SUITE_P(Orders, Composite,
                         ::testing::Values("libm.so.6:%", "%:libm.so.6", "libm.so.6 %",
                                           "% libm.so.6", "libm.so.6:%:librt.so.1"));

// The constructor of another library may call dlopen before ours has run.
TEST(Notifier, WorksBeforeOurConstructor) {
  Scene scene;
  scene.Observer("2.11");
  const std::string early = NANWATCH_TEST_PROGRAMS "/libearly.so";
  // A library that stands later in the list is constructed earlier.
  Ran ran = scene.Host({"during", "said", "1"}, {{"LD_PRELOAD", scene.Library() + ":" + early},
                                                 {"EARLY_OPEN", scene.TorchPackage("2.11.0")}});
  EXPECT_EQ(ran.status, 0) << ran.out;
  EXPECT_EQ(ran.out, "during threads=1 on_main=1 constructed=1\n");
  ASSERT_EQ(ran.log.size(), 1u);
}

}  // namespace
}  // namespace nanwatch::test
