#include "tools/finding_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

RunFacts TwoFindings() {
  RunBuilder run;
  run.Value(1)
      .Produce("aten::sqrt")
      .At("valves.main")
      .Step(5)
      .Nan(4, 8)
      .Line("model.py:7 in forward");
  run.Value(2).Propagate("aten::mean").From(1);
  return run.Build();
}

TEST(FindingLine, SaysWhereAndWhat) {
  const std::vector<FindingLine> lines = FindingsAfter(TwoFindings(), 0);
  ASSERT_THAT(lines, SizeIs(2));
  const std::string text = LineAsText(lines[0]);
  EXPECT_THAT(text, HasSubstr("step 5"));
  EXPECT_THAT(text, HasSubstr("valves.main  aten::sqrt"));
  EXPECT_THAT(text, HasSubstr("produce  NaN 4 of 8"));
  EXPECT_THAT(text, HasSubstr("model.py:7 in forward"));
}

TEST(FindingLine, WhatWasSeenBeforeIsNotSeenAgain) {
  EXPECT_THAT(FindingsAfter(TwoFindings(), 1), SizeIs(1));
  EXPECT_THAT(FindingsAfter(TwoFindings(), 2), IsEmpty());
}

TEST(FindingLine, AsJsonIsOneObjectOnOneLine) {
  const std::string text = LineAsJson(FindingsAfter(TwoFindings(), 0)[0]);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto object = nlohmann::json::parse(text);
  EXPECT_EQ(object["op"], "aten::sqrt");
  EXPECT_EQ(object["nan"], 4);
}

TEST(FindingLine, TextThatIsNoUtf8DoesNotStopIt) {
  FindingLine line;
  line.layer = "\xff\xfe";
  EXPECT_TRUE(nlohmann::json::accept(LineAsJson(line)));
}

TEST(FindingLine, ARecordWithoutItsSiteIsStillALine) {
  RunFacts facts = TwoFindings();
  facts.clear_sites();
  EXPECT_THAT(FindingsAfter(facts, 0), SizeIs(2));
}

}  // namespace
}  // namespace nanwatch
