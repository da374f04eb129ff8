// SPDX-License-Identifier: Apache-2.0
#include "daemon/explain/pattern_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "daemon/explain/patterns_text.h"

namespace nanwatch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(PatternBook, EveryBuiltInEntryCanBeRead) {
  std::vector<std::string> problems;
  const PatternBook book = PatternBook::Parse(kPatternsText, &problems);
  EXPECT_THAT(problems, IsEmpty());
  EXPECT_GE(book.causes().size(), 12u);
}

TEST(PatternBook, IdsAreUnique) {
  std::set<std::string> ids;
  const PatternBook book = PatternBook::BuiltIn();
  for (const KnownCause& cause : book.causes())
    EXPECT_TRUE(ids.insert(cause.id).second) << cause.id;
}

// 90 columns are left for a sentence, and a cause or a fix gets two lines.
TEST(PatternBook, SentencesFitTheScreen) {
  const PatternBook book = PatternBook::BuiltIn();
  for (const KnownCause& cause : book.causes()) {
    EXPECT_LE(cause.cause.size(), 170u) << cause.id;
    EXPECT_LE(cause.fix.size(), 170u) << cause.id;
  }
}

TEST(PatternBook, EntryThatCannotBeReadIsNamedAndLeftOut) {
  const char* text = R"([
    {"id": "a", "match": {}, "cause": "c", "fix": "f", "evidence": []},
    {"id": "b", "match": {"where": ["input.nan like 3"]}, "cause": "c", "fix": "f", "evidence": []},
    {"id": "c", "match": {"opp": ["x"]}, "cause": "c", "fix": "f", "evidence": []},
    {"id": "d", "match": {}, "cause": "c", "evidence": []}, 7])";
  std::vector<std::string> problems;
  EXPECT_THAT(PatternBook::Parse(text, &problems).causes(), SizeIs(1));
  EXPECT_THAT(problems, SizeIs(4));
}

TEST(PatternBook, WhatDeadParametersReachLaterIsNotReached) {
  std::vector<std::string> problems;
  const PatternBook book = PatternBook::Parse(
      R"([{"id": "a", "match": {"not_reach": ["loss"]}, "cause": "c", "fix": "f", "evidence": []}])",
      &problems);
  for (const int64_t step : {7, 8}) {
    Incident incident;
    incident.mutable_origin()->set_step(7);
    incident.add_reach("loss");
    Finding& link = *incident.add_chain();
    link.set_reach("loss");
    link.set_step(step);
    EXPECT_EQ(book.Find(incident).has_value(), step == 8) << step;
  }
}

TEST(PatternBook, TextThatIsNoListIsAProblemAndNoCrash) {
  std::vector<std::string> problems;
  EXPECT_THAT(PatternBook::Parse("{\"id\":", &problems).causes(), IsEmpty());
  EXPECT_THAT(problems, SizeIs(1));
}

TEST(PatternBook, ElementThatBeginsWithAnExclamationMarkForbids) {
  std::vector<std::string> problems;
  const PatternBook book = PatternBook::Parse(
      R"([{"id": "a", "match": {"node": ["*Backward", "!Compiled*"]}, "cause": "c", "fix": "f", "evidence": []},
          {"id": "b", "match": {"node": ["!*Backward0"]}, "cause": "c", "fix": "f", "evidence": []}])",
      &problems);
  const auto pattern_in = [&book](const char* node) {
    Incident incident;
    incident.mutable_origin()->set_autograd_node(node);
    return book.Find(incident).value_or(Pattern()).id();
  };
  EXPECT_EQ(pattern_in("NormBackward"), "a");
  EXPECT_EQ(pattern_in("CompiledBackward"), "b");
  EXPECT_EQ(pattern_in("DivBackward0"), "");
}

TEST(PatternBook, WhatCannotBeReadIsToldWithTheReason) {
  for (const auto& [match, reason] :
       {std::pair{R"({"reach": ["!loss"]})", "! is not allowed in reach, use not_reach"},
        {R"({"not_reach": ["!loss"]})", "! is not allowed in not_reach, use reach"},
        {R"({"later": ["aten::where"]})", "match has no later"},
        {R"({"op": "aten::mm"})", "op is not a list of strings"},
        {R"({"where": ["inputfoo.nan > 0"]})", "there is no number named inputfoo.nan"},
        {R"({"where": ["input.nan => 0"]})",
         "\"input.nan => 0\" is not a comparison with a number"},
        {R"({"where": ["input.nan > 0 !"]})",
         "\"input.nan > 0 !\" is not a comparison with a number"},
        {R"({"ops_of": "b"})", "ops_of names no entry before this one: b"}}) {
    const std::string text = std::string(R"([{"id": "a", "match": )") + match +
                             R"(, "cause": "c", "fix": "f", "evidence": []}])";
    std::vector<std::string> problems;
    EXPECT_THAT(PatternBook::Parse(text, &problems).causes(), IsEmpty()) << text;
    ASSERT_THAT(problems, SizeIs(1)) << text;
    EXPECT_THAT(problems[0], EndsWith(std::string(": ") + reason));
  }
}

TEST(PatternBook, OpsOfAnotherEntry) {
  std::vector<std::string> problems;
  const PatternBook book = PatternBook::Parse(
      R"([{"id": "a", "match": {"op": ["aten::m*"]}, "cause": "c", "fix": "f"},
          {"id": "b", "match": {"ops_of": "a"}, "cause": "c", "fix": "f"}])",
      &problems);
  ASSERT_THAT(problems, IsEmpty());
  EXPECT_EQ(book.causes()[1].ops, std::vector<std::string>{"aten::m*"});
}

TEST(PatternBook, WhatAPatternForbidsIsTold) {
  std::vector<std::string> problems;
  const PatternBook book = PatternBook::Parse(
      R"([{"id": "a", "match": {"dtype": ["!float16"], "node": ["*Backward", "!Compiled*"],
           "op": ["aten::mm"]}, "cause": "c", "fix": "f"}])",
      &problems);
  Incident incident;
  incident.mutable_pattern()->set_id("a");
  Finding& origin = *incident.mutable_origin();
  origin.set_op("aten::mm");
  origin.set_autograd_node("NormBackward");
  EXPECT_THAT(
      book.WhyItFits(incident),
      ElementsAre("op is aten::mm", "node is NormBackward (required: *Backward, not Compiled*)",
                  "dtype is not known (required: not float16)"));
  origin.add_outputs()->set_dtype("float32");
  EXPECT_THAT(book.WhyItFits(incident), Contains("dtype is float32 (required: not float16)"));
}

}  // namespace
}  // namespace nanwatch
