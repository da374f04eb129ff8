// SPDX-License-Identifier: Apache-2.0
#include "tools/job_verdict.h"

#include <gtest/gtest.h>

#include "tests/daemon/correlate/run_builder.h"
#include "tools/exit_codes.h"

namespace nanwatch {
namespace {

int ExitCodeOf(const RunFacts& run) { return CheckExitCode(VerdictOfJob({run}, std::nullopt)); }

RunFacts LossOfNan(uint64_t lost) {
  RunBuilder run;
  run.Value(1).Produce("aten::log").Nan();
  run.Pass(2).Root(1);
  RunFacts facts = run.Build();
  facts.mutable_state()->set_records_dropped(lost);
  return facts;
}

TEST(ReportCheck, CleanAndExpectedAreFine) {
  EXPECT_EQ(ExitCodeOf(RunBuilder().Build()), kExitOk);
  RunBuilder masked;
  masked.Value(1).Scalar("aten::full").NegInf();
  EXPECT_EQ(ExitCodeOf(masked.Build()), kExitOk);
}

TEST(ReportCheck, AnAnomalyIsTwoEvenWhenFindingsWereLost) {
  EXPECT_EQ(ExitCodeOf(LossOfNan(0)), kExitAnomaly);
  EXPECT_EQ(ExitCodeOf(LossOfNan(3)), kExitAnomaly);
}

TEST(ReportCheck, LostFindingsAreUnknown) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_state()->set_records_dropped(1);
  EXPECT_EQ(ExitCodeOf(facts), kExitCannotTell);
}

TEST(ReportCheck, NothingObservedIsUnknown) {
  EXPECT_EQ(CheckExitCode(VerdictOfJob({}, std::nullopt)), kExitCannotTell);
  RunFacts idle = RunBuilder().Build();
  idle.mutable_state()->set_tensors_checked(0);
  EXPECT_EQ(ExitCodeOf(idle), kExitCannotTell);
}

TEST(ReportCheck, AVerdictOfANewerVersionIsUnknown) {
  Verdict verdict;
  verdict.set_verdict("perhaps");
  EXPECT_EQ(CheckExitCode(verdict), kExitCannotTell);
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
