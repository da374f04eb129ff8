#include "tools/job_verdict.h"

#include <gtest/gtest.h>

#include "tests/daemon/correlate/run_builder.h"
#include "tools/exit_codes.h"

namespace nanwatch {
namespace {

Verdict Watched(const std::string& word, uint64_t lost = 0) {
  Verdict verdict;
  verdict.set_verdict(word);
  verdict.add_runs();
  verdict.mutable_coverage()->set_tensors_checked(10);
  verdict.mutable_coverage()->set_lost_events(lost);
  return verdict;
}

TEST(ReportCheck, CleanAndExpectedAreFine) {
  EXPECT_EQ(CheckExitCode(Watched("clean")), kExitOk);
  EXPECT_EQ(CheckExitCode(Watched("expected")), kExitOk);
}

TEST(ReportCheck, AnAnomalyIsTwoEvenWhenFindingsWereLost) {
  EXPECT_EQ(CheckExitCode(Watched("anomaly")), kExitAnomaly);
  EXPECT_EQ(CheckExitCode(Watched("anomaly", 3)), kExitAnomaly);
}

TEST(ReportCheck, LostFindingsCannotBeTold) {
  EXPECT_EQ(CheckExitCode(Watched("clean", 1)), kExitCannotTell);
}

TEST(ReportCheck, NothingObservedCannotBeTold) {
  EXPECT_EQ(CheckExitCode(VerdictOfJob({}, std::nullopt)), kExitCannotTell);
  Verdict idle = Watched("clean");
  idle.mutable_coverage()->set_tensors_checked(0);
  EXPECT_EQ(CheckExitCode(idle), kExitCannotTell);
}

RunFacts EndedRun(int pid) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_run()->set_pid(pid);
  facts.mutable_run()->set_nonce(static_cast<uint64_t>(pid));
  facts.mutable_run()->set_started_real_ns(1'795'257'546'123'000'000);
  facts.mutable_state()->set_ended(true);
  facts.mutable_state()->set_ended_real_ns(1'795'257'547'123'000'000);
  return facts;
}

JobExit Exit(int pid, int code) {
  return {.job = "j", .pid = pid, .exit_code = code, .signal = {}, .ended_real_ns = 1};
}

TEST(JobVerdict, TheCommandsStatusIsThatOfItsOwnProcessAndOfTheHeadline) {
  const Verdict verdict = VerdictOfJob({EndedRun(10), EndedRun(11)}, Exit(11, 7));
  EXPECT_EQ(verdict.run().exit_code(), 7);
  for (const RunInfo& run : verdict.runs()) {
    EXPECT_EQ(run.has_exit_code(), run.pid() == 11);
  }
}

TEST(JobVerdict, ALoneProcessBehindAShellHasTheCommandsStatus) {
  const Verdict verdict = VerdictOfJob({EndedRun(10)}, Exit(9, 7));
  EXPECT_EQ(verdict.run().exit_code(), 7);
  EXPECT_EQ(verdict.runs(0).exit_code(), 7);
}

TEST(JobVerdict, AProcessLeftBehindHasNoStatusYet) {
  RunFacts running = EndedRun(10);
  running.mutable_state()->set_ended(false);
  running.mutable_state()->clear_ended_real_ns();
  const Verdict verdict = VerdictOfJob({running}, Exit(9, 0));
  EXPECT_FALSE(verdict.run().has_exit_code());
  EXPECT_FALSE(verdict.runs(0).has_exit_code());
}

}  // namespace
}  // namespace nanwatch
