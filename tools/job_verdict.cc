// SPDX-License-Identifier: Apache-2.0
#include "tools/job_verdict.h"

#include <algorithm>

#include "tools/exit_codes.h"

namespace nanwatch {
namespace {

// RunInfo or RunState.
template <class Run>
void SetEnd(Run& run, const JobExit& exit) {
  if (run.has_exit_code() || run.has_signal()) return;
  if (exit.exit_code.has_value()) run.set_exit_code(*exit.exit_code);
  if (exit.signal.has_value()) run.set_signal(*exit.signal);
}

// What a job ended with is a fact that verdicts go by (correlate/death_rule.h).
std::vector<RunFacts> WithEnd(std::vector<RunFacts> facts, const std::optional<JobExit>& exit) {
  for (RunFacts& run : facts) {
    const bool alone = facts.size() == 1 && run.state().ended();
    if (exit.has_value() && (alone || run.run().pid() == exit->pid)) {
      SetEnd(*run.mutable_state(), *exit);
    }
  }
  return facts;
}

}  // namespace

Verdict VerdictOfJob(const std::vector<RunFacts>& facts, const std::optional<JobExit>& exit,
                     const std::vector<UnwatchedProcess>& unwatched) {
  return DiagnosisOfJob(facts, exit, {.unwatched = unwatched}).verdict;
}

Diagnosed DiagnosisOfJob(const std::vector<RunFacts>& facts, const std::optional<JobExit>& exit,
                         const DiagnosisRequest& request) {
  Diagnosed diagnosed = DiagnoseAsked(WithEnd(facts, exit), request);
  Verdict& verdict = diagnosed.verdict;
  if (verdict.schema().empty()) verdict.set_schema("nanwatch.verdict/1");
  if (!exit.has_value()) return diagnosed;
  if (verdict.has_run() && (verdict.run().has_ended_at() || verdict.run().pid() == exit->pid)) {
    SetEnd(*verdict.mutable_run(), *exit);
  }
  return diagnosed;
}

bool StillRuns(const std::vector<RunFacts>& facts) {
  return std::any_of(facts.begin(), facts.end(),
                     [](const RunFacts& run) { return !run.state().ended(); });
}

int CheckExitCode(const Verdict& verdict) {
  if (verdict.verdict() == "anomaly") return kExitAnomaly;
  const bool is_known = verdict.verdict() == "clean" || verdict.verdict() == "expected";
  return is_known ? kExitOk : kExitCannotTell;
}

}  // namespace nanwatch
