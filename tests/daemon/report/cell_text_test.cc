// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/cell_text.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

TEST(CellText, CellsAreThoseOfATerminal) {
  EXPECT_EQ(CellsOf("abc"), 3u);
  EXPECT_EQ(CellsOf("t\u00e9"), 2u);
  EXPECT_EQ(CellsOf("\u8bad\u7ec3"), 4u);
  EXPECT_EQ(CellsOf("e\u0301"), 1u);
  EXPECT_EQ(CellsOf("\U0001f525"), 2u);
}

TEST(CellText, WhatIsTooLongEndsInDots) {
  EXPECT_EQ(CutToCells("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(CutToCells("abcdefghi", 8), "abcde...");
  EXPECT_EQ(CutToCells("abcdefghi", 4), "abcd");
  EXPECT_EQ(CutToCells("\u8bad\u7ec3\u8bad", 3), "\u8bad");
  EXPECT_EQ(FillCells("\u8bad\u7ec3", 5, true), " \u8bad\u7ec3");
}

TEST(CellText, TheEndThatFitsIsWholeCharacters) {
  EXPECT_EQ(LastCells("abcdef", 2), "ef");
  EXPECT_EQ(LastCells("\u8bad\u7ec3", 3), "\u7ec3");
  EXPECT_EQ(LastCells("ab", 5), "ab");
}

}  // namespace
}  // namespace nanwatch
