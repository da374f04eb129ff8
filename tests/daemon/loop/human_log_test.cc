// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/human_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "daemon/report/incident_words.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

using testing::HasSubstr;

std::string ContentOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(HumanLogTest, TellsAnIncidentInTheWordsOfTheReport) {
  TemporaryDirectory directory;
  const auto log = MakeHumanLog(directory / "nanwatch.log", /*to_stderr=*/false);
  Verdict verdict;
  verdict.mutable_run()->set_program("train.py");
  Incident incident;
  incident.set_severity("error");
  incident.mutable_origin()->set_op("aten::log");
  log->IncidentSeen(verdict, incident, /*reach_grew=*/true);
  EXPECT_THAT(ContentOf(directory / "nanwatch.log"),
              HasSubstr("warning reached further: " + IncidentLine(verdict, incident) + "\n"));
}

TEST(HumanLogTest, TellsAWarningInOneLineWithItsLevel) {
  TemporaryDirectory directory;
  const auto log = MakeHumanLog(directory / "nanwatch.log", /*to_stderr=*/false);
  Verdict verdict;
  verdict.mutable_run()->set_program("train.py");
  Warning warning;
  warning.set_severity("warning");
  warning.set_run("7f3a21c0ffffffff");
  warning.set_evidence("gradient norm 3.2e+06 at step 412");
  warning.set_cause("it grows");
  log->WarningSeen(verdict, warning);
  warning.set_severity("info");
  log->WarningSeen(verdict, warning);
  EXPECT_THAT(ContentOf(directory / "nanwatch.log"),
              testing::ContainsRegex(
                  "warning warning train.py, run 7f3a21c0, rank 0: gradient norm 3.2e.06 at step "
                  "412; it grows\n[^\n]* info info train.py"));
}

TEST(HumanLogTest, EveryLineIsInTheFileAtOnce) {
  TemporaryDirectory directory;
  const auto log = MakeHumanLog(directory / "nanwatch.log", /*to_stderr=*/false);
  log->Trouble("the disk is full");
  EXPECT_THAT(ContentOf(directory / "nanwatch.log"), HasSubstr("the disk is full"));
}

TEST(HumanLogTest, GoesOnInANewFileWhenSomebodyElseRenamedIt) {
  TemporaryDirectory directory;
  const auto log = MakeHumanLog(directory / "nanwatch.log", /*to_stderr=*/false);
  std::filesystem::rename(directory / "nanwatch.log", directory / "theirs");
  log->Reopen();
  log->Remark("after");
  EXPECT_THAT(ContentOf(directory / "nanwatch.log"), HasSubstr("after"));
}

TEST(HumanLogTest, APlaceThatCannotBeWrittenIsNoReasonToStop) {
  TemporaryDirectory directory;
  std::ofstream(directory / "file") << "no directory";  // not even root makes a file under a file
  const auto log = MakeHumanLog(directory / "file/nanwatch.log", /*to_stderr=*/false);
  log->Trouble("nobody hears this");
}

}  // namespace
}  // namespace nanwatch
