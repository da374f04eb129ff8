// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/explanation_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "daemon/explain/explain.h"
#include "daemon/report/json_report.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Explanation Explained(const RunBuilder& run, const std::string& rules = "") {
  return DiagnoseAsked({run.Build()}, {.further_rules = rules, .explained = 1}).explanation;
}

RunBuilder NanInTheBatch() {
  RunBuilder run;
  run.Value(4).External("aten::mm").At("fc").FromOutside(wire::Target::kInputData, "").Nan();
  run.Value(5).Propagate("aten::mean").From(4).Nan();
  run.Pass(6).Root(5);
  return run;
}

// The rows joined again, so that a test need not know where a line breaks.
std::string OneLine(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
  return line;
}

TEST(ExplanationText, IsASentenceARow) {
  const std::string text = ExplanationText(Explained(NanInTheBatch()), 100);
  EXPECT_THAT(text,
              StartsWith("incident  1, severity error; the verdict of the job is anomaly\n"
                         "origin    record 4 (aten::mm, fc, forward, step 0) is the origin:"));
  EXPECT_THAT(text, HasSubstr("\nlink      record 5 (aten::mean, "));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(ExplanationText, NamesThePatternAndWhatOfItMatched) {
  const std::string text = OneLine(ExplanationText(Explained(NanInTheBatch()), 100));
  EXPECT_THAT(text, HasSubstr("pattern record 4 (aten::mm, fc, forward, step 0) fits the pattern "
                              "nan-in-batch: kind is input_data"));
  RunBuilder run;
  run.Value(1).Produce("aten::sqrt").Nan(2, 8);
  run.Pass(2).Root(1);
  EXPECT_THAT(
      OneLine(ExplanationText(Explained(run), 100)),
      HasSubstr("fits the pattern root-of-negative: class is produce, op is aten::sqrt (required: "
                "aten::sqrt*), output.nan is 2 (required: > 0)"));
}

TEST(ExplanationText, NamesTheRuleThatMadeItExpected) {
  const std::string text = OneLine(ExplanationText(Explained(NanInTheBatch(), "op=aten::mm"), 100));
  EXPECT_THAT(text, HasSubstr("incident 1, severity info; the verdict of the job is expected"));
  EXPECT_THAT(
      text,
      HasSubstr("matches your rule 'op=aten::mm', so what would have been an anomaly is expected"));
  EXPECT_THAT(OneLine(ExplanationText(Explained(NanInTheBatch()), 100)), Not(HasSubstr("rule")));
}

TEST(ExplanationText, TerminalIsSafeFromNamesOfTheJob) {
  RunBuilder run;
  run.Value(1).Produce("aten::log\033[2J").At("a\nb").Nan();
  run.Pass(2).Root(1);
  for (const char byte : ExplanationText(Explained(run), 100)) {
    EXPECT_TRUE(byte == '\n' || static_cast<unsigned char>(byte) >= 0x20);
  }
}

TEST(ExplanationJson, HoldsTheSameSteps) {
  const auto document = nlohmann::json::parse(JsonExplanation(Explained(NanInTheBatch())));
  EXPECT_EQ(document["schema"], "nanwatch.explanation/1");
  EXPECT_EQ(document["incident"], 1);
  EXPECT_EQ(document["steps"][0]["about"], "origin");
  EXPECT_EQ(document["steps"][0]["ticket"], 4);
  EXPECT_EQ(document["steps"][0]["layer"], "fc");
}

}  // namespace
}  // namespace nanwatch
