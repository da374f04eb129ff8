#include "daemon/explain/pattern_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "daemon/explain/finding_facts.h"
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

TEST(FindingFacts, UnknownNamesAreNotFilledIn) {
  Finding finding;
  finding.set_op("aten::sqrt_");
  EXPECT_EQ(FillIn("{op} is {op_name}", finding), "aten::sqrt_ is sqrt");
  EXPECT_EQ(FillIn("{input.numel} of {op}", finding), std::nullopt);
  EXPECT_EQ(FillIn("{nonsense}", finding), std::nullopt);
  EXPECT_EQ(FillIn("open { brace", finding), "open { brace");
}

TEST(FindingFacts, RangeOfATensorWithoutFiniteValuesIsUnknown) {
  Finding finding;
  TensorStats& output = *finding.add_outputs();
  output.set_numel(4);
  output.set_nan(4);
  EXPECT_EQ(NumberOf(finding, "output.finite_max"), std::nullopt);
  output.set_nan(3);
  output.set_finite_max(2.5);
  EXPECT_EQ(NumberOf(finding, "output.finite_max"), 2.5);
}

}  // namespace
}  // namespace nanwatch
