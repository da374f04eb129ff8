// SPDX-License-Identifier: Apache-2.0
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

TEST(FindingLine, TheKernelsOfAFindingAreALineAtItsPlace) {
  RunFacts facts = TwoFindings();
  const uint64_t newest = FindingsAfter(facts, 0).back().ticket;
  Record& record = *facts.add_records();
  record.set_ticket(newest + 1);
  record.mutable_kernels()->set_value(newest);
  KernelsFact::Kernel& kernel = *record.mutable_kernels()->add_kernels();
  kernel.set_name("_Z10log_kernelPf");
  kernel.set_count(1);
  kernel.set_nanoseconds(2500);
  const std::vector<FindingLine> lines = FindingsAfter(facts, newest);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].op, FindingsAfter(facts, 0)[1].op);
  EXPECT_THAT(LineAsText(lines[0]), HasSubstr(lines[0].op + "  ran log_kernel, 2.5 us"));
  EXPECT_THAT(LineAsJson(lines[0]), HasSubstr("\"event\":\"kernels\""));
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
