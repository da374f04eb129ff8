// SPDX-License-Identifier: Apache-2.0
#include "proto/wire/text.h"

#include <gtest/gtest.h>

namespace nanwatch::wire {
namespace {

constexpr char kMark[] = "\xef\xbf\xbd";

TEST(Text, LeavesGoodTextAlone) {
  EXPECT_EQ(CleanText("encoder.layers.0"), "encoder.layers.0");
  EXPECT_EQ(CleanText("schön, 日本, \xf0\x9f\x98\x80"), "schön, 日本, \xf0\x9f\x98\x80");
  EXPECT_EQ(CleanText(""), "");
}

TEST(Text, ReplacesWhatATerminalWouldObey) {
  EXPECT_EQ(CleanText("a\x1b[2Jb"), std::string("a") + kMark + "[2Jb");
  EXPECT_EQ(CleanText("a\nb\tc\x7f"), std::string("a") + kMark + "b" + kMark + "c" + kMark);
  EXPECT_EQ(CleanText(std::string_view("a\0b", 3)), std::string("a") + kMark + "b");
  EXPECT_EQ(CleanText("\xc2\x9b"), kMark) << "the one-byte CSI of ISO 6429, as UTF-8";
  EXPECT_EQ(CleanText("\xe2\x80\xae"), kMark) << "right-to-left override";
  EXPECT_EQ(CleanText("\xe2\x81\xa6"), kMark) << "isolate";
  EXPECT_EQ(CleanText("\xe2\x80\xa8"), kMark) << "line separator";
}

TEST(Text, ReplacesEachByteThatIsNotUtf8) {
  EXPECT_EQ(CleanText("\xff"), kMark);
  EXPECT_EQ(CleanText("\x80g"), std::string(kMark) + "g");
  EXPECT_EQ(CleanText("\xc0\xaf"), std::string(kMark) + kMark) << "overlong slash";
  EXPECT_EQ(CleanText("\xe0\x80\xaf"), std::string(kMark) + kMark + kMark);
  EXPECT_EQ(CleanText("\xed\xa0\x80"), std::string(kMark) + kMark + kMark) << "surrogate";
  EXPECT_EQ(CleanText("\xf4\x90\x80\x80"), std::string(kMark) + kMark + kMark + kMark);
  EXPECT_EQ(CleanText("\xe6\x97"), std::string(kMark) + kMark) << "cut off";
}

TEST(Text, StaysWithinItsBytesAndEndsBetweenCharacters) {
  EXPECT_EQ(CleanText(std::string(600, 'a')).size(), kTextBytesMax);
  EXPECT_EQ(CleanText("aüb", 2), "a");
  EXPECT_EQ(CleanText("\n\n\n", 7), std::string(kMark) + kMark);
  EXPECT_EQ(CutText("aüb", 2), "a");
  EXPECT_EQ(CutText("aüb", 3), "aü");
  EXPECT_EQ(CutText("日本", 5), "日");
  EXPECT_EQ(CutText("", 0), "");
  EXPECT_EQ(CutText("\x80\x80\x80\x80\x80", 4).size(), 4u) << "not UTF-8: cut anywhere";
}

}  // namespace
}  // namespace nanwatch::wire
