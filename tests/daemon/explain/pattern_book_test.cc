#include "daemon/explain/pattern_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "daemon/explain/patterns_text.h"

namespace nanwatch {
namespace {

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

TEST(PatternBook, LaterOpsAreLookedForBehindTheOrigin) {
  std::vector<std::string> problems;
  const PatternBook book = PatternBook::Parse(
      R"([{"id": "a", "match": {"later": ["aten::w*"]}, "cause": "c", "fix": "f", "evidence": []}])",
      &problems);
  Incident incident;
  incident.mutable_origin()->set_ticket(1);
  EXPECT_FALSE(book.Find(incident));
  Finding& link = *incident.add_chain();
  link.set_ticket(2);
  link.set_op("aten::where");
  EXPECT_TRUE(book.Find(incident));
}

}  // namespace
}  // namespace nanwatch
