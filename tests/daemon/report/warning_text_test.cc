// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/warning_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/report/text_report.h"

namespace nanwatch {
namespace {

using testing::HasSubstr;
using testing::Not;

Verdict Warned(const std::string& severity, int count, bool before) {
  Verdict verdict;
  for (int i = 0; i < count; ++i) {
    Warning& warning = *verdict.add_warnings();
    warning.set_severity(severity);
    warning.set_evidence("gradient norm " + std::to_string(i));
    warning.set_cause("it grows");
    warning.set_fix("clip it");
    if (before) warning.set_steps_before(25 - i);
  }
  return verdict;
}

TEST(WarningText, SaysHowManyStepsBeforeTheOrigin) {
  const std::string rows = RowsBeforeIncident(Warned("warning", 1, true), 100);
  EXPECT_EQ(rows, "before it 25 steps before: gradient norm 0; it grows\n");
}

TEST(WarningText, WhatCameAfterTheOriginIsNotBeforeIt) {
  EXPECT_EQ(RowsBeforeIncident(Warned("warning", 2, false), 100), "");
}

TEST(WarningText, TellsTheWeightiestAndCountsTheRest) {
  Verdict verdict = Warned("info", 3, true);
  verdict.mutable_warnings(2)->set_severity("warning");
  const std::string rows = RowsBeforeIncident(verdict, 100);
  EXPECT_THAT(rows, testing::StartsWith("before it 23 steps before: gradient norm 2"));
  EXPECT_THAT(rows, HasSubstr("and 1 more warning (--json)"));
}

TEST(WarningText, ACleanRunHasThemWithWhatToDo) {
  Verdict verdict = Warned("warning", 1, false);
  verdict.set_verdict("clean");
  verdict.add_runs();
  verdict.mutable_coverage()->set_tensors_checked(9);
  const std::string report = TextReport(verdict, TextOptions());
  EXPECT_THAT(report, testing::StartsWith("CLEAN"));
  EXPECT_THAT(report, HasSubstr("warning   gradient norm 0; it grows\n          do: clip it\n"));
  verdict.mutable_warnings(0)->set_severity("info");
  EXPECT_THAT(TextReport(verdict, TextOptions()), HasSubstr("note      gradient norm 0"));
}

TEST(WarningText, AReportWithoutWarningsHasNoSuchRows) {
  EXPECT_EQ(WarningRows(Verdict(), 100), "");
  EXPECT_EQ(RowsBeforeIncident(Verdict(), 100), "");
}

}  // namespace
}  // namespace nanwatch
