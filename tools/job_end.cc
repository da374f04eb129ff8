// SPDX-License-Identifier: Apache-2.0
#include "tools/job_end.h"

#include <algorithm>
#include <chrono>

#include "tools/daemon_start.h"
#include "tools/terminal.h"

namespace nanwatch {
namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{25};
constexpr milliseconds kLeftBehind{500};  // for background processes, which may go on for days
constexpr milliseconds kSayAfter{2000};
constexpr milliseconds kGiveUp{10000};
constexpr milliseconds kGiveUpWhenAskedToStop{3000};

// The state at one poll; kGaveUp means "not yet".
JobEndWait Look(Observations& observations, const std::string& job, bool waited_for_those_left) {
  const std::vector<SeenRun> runs = observations.RunsOfJob(job);
  if (runs.empty()) return JobEndWait::kNothingSeen;
  const auto is_pending = [](const SeenRun& run) { return run.has_segment || !run.state.ended(); };
  if (std::none_of(runs.begin(), runs.end(), is_pending)) return JobEndWait::kComplete;
  const bool only_live = std::all_of(
      runs.begin(), runs.end(), [&](const SeenRun& run) { return run.live || !is_pending(run); });
  if (only_live && waited_for_those_left) return JobEndWait::kStillRunning;
  if (!RunningDaemon(observations.places().segment_dir).has_value()) {
    return only_live ? JobEndWait::kGaveUp : JobEndWait::kNoDaemon;
  }
  return JobEndWait::kGaveUp;
}

}  // namespace

JobEndWait AwaitJobEnd(SignalGate& gate, Observations& observations, const std::string& job,
                       bool asked_to_stop) {
  const SteadyClock::time_point start = SteadyClock::now();
  const milliseconds limit = asked_to_stop ? kGiveUpWhenAskedToStop : kGiveUp;
  bool said = false;
  while (true) {
    const auto waited = SteadyClock::now() - start;
    const JobEndWait seen = Look(observations, job, waited > kLeftBehind);
    if (seen != JobEndWait::kGaveUp || waited > limit) return seen;
    if (waited > kSayAfter && !said) {
      Say("waiting for the daemon to read what the job left (Ctrl-C: report without waiting)");
      said = true;
    }
    const int signal = gate.Next(kLook).signal;
    if (signal == SIGINT || signal == SIGTERM || signal == SIGQUIT) return JobEndWait::kGaveUp;
  }
}

}  // namespace nanwatch
