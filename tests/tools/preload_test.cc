// SPDX-License-Identifier: Apache-2.0
#include "tools/preload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nanwatch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kOurs[] = "/opt/nanwatch/lib/libnanwatch.so";

// A file system in which every path but those under /gone exists, and /link leads to /opt.
std::string Resolve(const std::string& path) {
  if (path.starts_with("/gone")) return "";
  if (path.starts_with("/link/")) return "/opt/" + path.substr(6);
  return path;
}

std::string Compose(const std::string& current) {
  return ComposePreload(current, kOurs, Resolve).value;
}

TEST(Preload, AnEmptyOneBecomesOursAloneWithoutAColon) { EXPECT_EQ(Compose(""), kOurs); }

TEST(Preload, OursGoesBehindWhatIsThere) {
  EXPECT_EQ(Compose("libjemalloc.so.2"), std::string("libjemalloc.so.2:") + kOurs);
}

TEST(Preload, BlanksSeparateAsColonsDoAndEmptyNamesVanish) {
  EXPECT_EQ(Compose("/a.so  /b.so::"), std::string("/a.so:/b.so:") + kOurs);
}

TEST(Preload, OneThatNamesOursIsLeftByteForByte) {
  const std::string current = std::string("/a.so ") + kOurs + ":";
  const PreloadPlan plan = ComposePreload(current, kOurs, Resolve);
  EXPECT_TRUE(plan.already_there);
  EXPECT_EQ(plan.value, current);
  EXPECT_EQ(plan.other_copy, "");
}

TEST(Preload, OursIsRecognisedThroughALink) {
  const PreloadPlan plan = ComposePreload("/link/nanwatch/lib/libnanwatch.so", kOurs, Resolve);
  EXPECT_TRUE(plan.already_there);
  EXPECT_EQ(plan.other_copy, "");
}

TEST(Preload, AnotherInstallationsCopyIsLeftToWatchAndNamed) {
  const PreloadPlan plan = ComposePreload("/home/me/lib/libnanwatch.so", kOurs, Resolve);
  EXPECT_EQ(plan.value, "/home/me/lib/libnanwatch.so");
  EXPECT_EQ(plan.other_copy, "/home/me/lib/libnanwatch.so");
}

TEST(Preload, ACopyThatIsGoneDoesNotKeepOursOut) {
  EXPECT_EQ(Compose("/gone/lib/libnanwatch.so"), std::string("/gone/lib/libnanwatch.so:") + kOurs);
}

TEST(Preload, StrippingLeavesOtherLibrariesInTheirOrder) {
  EXPECT_EQ(WithoutNanwatch(std::string("/a.so:") + kOurs + " /b.so"), "/a.so:/b.so");
  EXPECT_EQ(WithoutNanwatch(kOurs), "");
}

TEST(Preload, APathWithAColonOrABlankCannotBeCarried) {
  EXPECT_TRUE(CanBePreloaded(kOurs));
  EXPECT_FALSE(CanBePreloaded("/my files/lib/libnanwatch.so"));
  EXPECT_FALSE(CanBePreloaded("/a:b/lib/libnanwatch.so"));
}

TEST(Preload, EntriesAreWhatTheLoaderSees) {
  EXPECT_THAT(PreloadEntries(":/a.so /b.so:"), ElementsAre("/a.so", "/b.so"));
  EXPECT_THAT(PreloadEntries(" : "), IsEmpty());
}

}  // namespace
}  // namespace nanwatch
