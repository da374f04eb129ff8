// SPDX-License-Identifier: Apache-2.0
#include "shim/host/ignore_text.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include "proto/wire/naming.h"
#include "tests/shim/host/segment_place.h"

namespace nanwatch {
namespace {

// What the section holds when the variable has this value.
std::unique_ptr<wire::IgnoreSection> Filled(const std::string& value) {
  setenv(wire::kEnvIgnore, value.c_str(), 1);
  auto section = std::make_unique<wire::IgnoreSection>();
  std::memset(section.get(), 0, sizeof *section);
  FillIgnore(*section);
  unsetenv(wire::kEnvIgnore);
  return section;
}

std::string TextOf(const wire::IgnoreSection& section) { return {section.text, section.bytes}; }

std::string FileOf(const SegmentPlace& place, const std::string& text) {
  const std::string path = place.parent() + "/rules";
  std::ofstream(path) << text;
  return path;
}

TEST(IgnoreText, IsTheVariableItself) {
  const auto section = Filled("op=aten::log; op=aten::div");
  EXPECT_EQ(TextOf(*section), "op=aten::log; op=aten::div");
  EXPECT_EQ(section->flags, 0u);
  EXPECT_EQ(Filled("")->bytes, 0u);
}

TEST(IgnoreText, IsTheFileThatTheVariableNames) {
  const SegmentPlace place;
  EXPECT_EQ(TextOf(*Filled("@" + FileOf(place, "# masks\nop=aten::log\n"))),
            "# masks\nop=aten::log\n");
}

TEST(IgnoreText, KeepsTheNameOfAFileThatCannotBeRead) {
  const SegmentPlace place;
  const auto missing = Filled("@" + place.parent() + "/none");
  EXPECT_EQ(missing->flags, wire::IgnoreSection::kUnreadable);
  EXPECT_EQ(missing->error, ENOENT);
  EXPECT_EQ(TextOf(*missing), place.parent() + "/none");
}

TEST(IgnoreText, DoesNotWaitForAPipe) {
  const SegmentPlace place;
  const std::string pipe = place.parent() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(Filled("@" + pipe)->flags, wire::IgnoreSection::kUnreadable);
}

TEST(IgnoreText, NeverEndsInTheMiddleOfARule) {
  const SegmentPlace place;
  std::string rules;
  while (rules.size() <= wire::kIgnoreBytesMax) rules += "op=aten::log layer=masks\n";
  ASSERT_NE(rules[wire::kIgnoreBytesMax - 1], '\n') << "the cut must fall inside a rule";
  for (const auto& section : {Filled(rules), Filled("@" + FileOf(place, rules))}) {
    EXPECT_EQ(section->flags, wire::IgnoreSection::kCut);
    EXPECT_TRUE(TextOf(*section).ends_with("layer=masks\n"));
    EXPECT_GT(section->bytes, wire::kIgnoreBytesMax - 32);
  }
  const auto one = Filled("op=aten::log layer=" + std::string(wire::kIgnoreBytesMax, 'x'));
  EXPECT_EQ(one->flags, wire::IgnoreSection::kCut);
  EXPECT_EQ(one->bytes, 0u);
}

TEST(IgnoreText, ThatJustFitsIsNotCut) {
  const SegmentPlace place;
  const std::string rules(wire::kIgnoreBytesMax, '#');
  for (const auto& section : {Filled(rules), Filled("@" + FileOf(place, rules))}) {
    EXPECT_EQ(section->flags, 0u);
    EXPECT_EQ(section->bytes, wire::kIgnoreBytesMax);
  }
}

}  // namespace
}  // namespace nanwatch
