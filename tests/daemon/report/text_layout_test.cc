// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/text_layout.h"

#include <gtest/gtest.h>

#include <limits>

namespace nanwatch {
namespace {

TEST(TextLayout, WordsWrapUnderThemselves) {
  EXPECT_EQ(Row("why", "aaaa bbbb cccc dddd", 24), "why       aaaa bbbb cccc\n          dddd\n");
}

TEST(TextLayout, LabelThatFillsItsColumnKeepsASpace) {
  EXPECT_EQ(Row("CANNOT TELL", "x", 40), "CANNOT TELL x\n");
}

TEST(TextLayout, BlanksBetweenColumnsEndWithTheLine) {
  EXPECT_EQ(Row("input", "aaaa   bbbb", 24), "input     aaaa   bbbb\n");
  EXPECT_EQ(Row("input", "aaaa   bbbb   cccc", 22), "input     aaaa   bbbb\n          cccc\n");
  EXPECT_EQ(Row("input", "aaaa bbbbb   cccc", 20), "input     aaaa bbbbb\n          cccc\n");
}

TEST(TextLayout, GluedWordsStayOnOneLine) {
  EXPECT_EQ(Row("do", "see " + Glued("nanwatch doctor") + " now", 26),
            "do        see\n          nanwatch doctor\n          now\n");
}

TEST(TextLayout, LongTextIsCutInTheMiddle) {
  EXPECT_EQ(Shorten("encoder.layers.1.self_attn", 15), "encode...f_attn");
  EXPECT_EQ(Shorten("short", 15), "short");
}

TEST(TextLayout, FirstWordsEndBetweenWords) {
  const char* const kText = ", or an op before it";
  EXPECT_EQ(FirstWords(kText, 20), kText);
  EXPECT_EQ(FirstWords(kText, 19), ", or an op ...");
  EXPECT_EQ(FirstWords(kText, 14), ", or an op ...");
  EXPECT_EQ(FirstWords(kText, 13), ", or an ...");
  EXPECT_EQ(FirstWords(kText, 7), "");
  EXPECT_EQ(FirstWords(kText, 0), "");
}

TEST(TextLayout, TextIsCutAndWrappedByTheCellsOfATerminal) {
  EXPECT_EQ(Shorten("\u8bad\u7ec3\u8bad\u7ec3\u8bad\u7ec3", 11), "\u8bad\u7ec3...\u8bad\u7ec3");
  EXPECT_EQ(Shorten("couche_\u00e9t\u00e9", 10), "couche_\u00e9t\u00e9");
  EXPECT_EQ(Row("why", "\u8bad\u7ec3\u8bad\u7ec3 \u8bad\u7ec3\u8bad\u7ec3", 24),
            "why       \u8bad\u7ec3\u8bad\u7ec3\n          \u8bad\u7ec3\u8bad\u7ec3\n");
}

TEST(TextLayout, WhatCanBeSeenStays) {
  // Dashes and quotation marks stand beside the marks that turn the direction of text.
  EXPECT_EQ(Printable("a\u2013b \u201cc\u201d\u2026"), "a\u2013b \u201cc\u201d\u2026");
}

TEST(TextLayout, WhatIsNotUtf8IsReplacedByteByByte) {
  EXPECT_EQ(Printable("\xc0\xaf"), "??");            // a slash, longer than need be
  EXPECT_EQ(Printable("\xed\xa0\x80"), "???");       // half of a surrogate pair
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "????");  // beyond Unicode
}

TEST(TextLayout, ControlCharactersAndBrokenUtf8BecomeQuestionMarks) {
  EXPECT_EQ(Printable("a\033[1mb\x7f"), "a?[1mb?");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "x"),
            "?x");  // C1 control: starts an escape sequence, too
  EXPECT_EQ(Printable("\xe2\x80\xae"
                      "abc"),
            "?abc");  // turns the direction of text
  EXPECT_EQ(Printable("\xff\xe2\x82"), "???");
  EXPECT_EQ(Printable("schicht_\xc3\xa4"), "schicht_\xc3\xa4");
}

TEST(TextLayout, NumbersAreGroupedByThree) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(61204), "61,204");
  EXPECT_EQ(Grouped(1234567), "1,234,567");
}

TEST(TextLayout, NumbersAreBrief) {
  EXPECT_EQ(Brief(-3.1), "-3.1");
  EXPECT_EQ(Brief(65504), "6.55e+04");
  EXPECT_EQ(Brief(-std::numeric_limits<double>::infinity()), "-Inf");
}

}  // namespace
}  // namespace nanwatch
