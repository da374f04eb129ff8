#include "daemon/loop/human_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

using testing::HasSubstr;

std::string ContentOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

Incident Example() {
  Incident incident;
  incident.set_severity("error");
  Finding& origin = *incident.mutable_origin();
  origin.set_run("7f3a21c0ffffffff");
  origin.set_step(117);
  origin.set_phase("forward");
  origin.set_layer("encoder.0.self_attn");
  origin.set_op("aten::_softmax");
  origin.set_class_("inf_to_nan");
  incident.add_reach("loss");
  incident.add_reach("parameter");
  return incident;
}

TEST(HumanLogTest, TellsAnIncidentInOneSentence) {
  Verdict verdict;
  verdict.mutable_run()->set_program("train.py");
  EXPECT_EQ(IncidentSentence(verdict, Example()),
            "ANOMALY train.py, run 7f3a21c0, rank 0: step 117, forward, encoder.0.self_attn, "
            "aten::_softmax, "
            "Inf became NaN; reached loss, parameter");
}

TEST(HumanLogTest, CallsWhatIsHarmlessExpected) {
  Incident incident = Example();
  incident.set_severity("info");
  EXPECT_THAT(IncidentSentence(Verdict(), incident), testing::StartsWith("expected "));
}

TEST(HumanLogTest, TellsAWarningInOneLineWithItsLevel) {
  TemporaryDirectory directory;
  HumanLog log(directory / "nanwatch.log", /*to_stderr=*/false);
  Verdict verdict;
  verdict.mutable_run()->set_program("train.py");
  Warning warning;
  warning.set_severity("warning");
  warning.set_run("7f3a21c0ffffffff");
  warning.set_evidence("gradient norm 3.2e+06 at step 412");
  warning.set_cause("it grows");
  log.WarningSeen(verdict, warning);
  warning.set_severity("info");
  log.WarningSeen(verdict, warning);
  EXPECT_THAT(ContentOf(directory / "nanwatch.log"),
              testing::ContainsRegex(
                  "warning warning train.py, run 7f3a21c0, rank 0: gradient norm 3.2e.06 at step "
                  "412; it grows\n[^\n]* info info train.py"));
}

TEST(HumanLogTest, EveryLineIsInTheFileAtOnce) {
  TemporaryDirectory directory;
  HumanLog log(directory / "nanwatch.log", /*to_stderr=*/false);
  log.Trouble("the disk is full");
  EXPECT_THAT(ContentOf(directory / "nanwatch.log"), HasSubstr("the disk is full"));
}

TEST(HumanLogTest, GoesOnInANewFileWhenSomebodyElseRenamedIt) {
  TemporaryDirectory directory;
  HumanLog log(directory / "nanwatch.log", /*to_stderr=*/false);
  std::filesystem::rename(directory / "nanwatch.log", directory / "theirs");
  log.Reopen();
  log.Remark("after");
  EXPECT_THAT(ContentOf(directory / "nanwatch.log"), HasSubstr("after"));
}

TEST(HumanLogTest, APlaceThatCannotBeWrittenIsNoReasonToStop) {
  TemporaryDirectory directory;
  std::ofstream(directory / "file") << "no directory";  // not even root makes a file under a file
  HumanLog log(directory / "file/nanwatch.log", /*to_stderr=*/false);
  log.Trouble("nobody hears this");
}

}  // namespace
}  // namespace nanwatch
