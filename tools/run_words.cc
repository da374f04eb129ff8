// SPDX-License-Identifier: Apache-2.0
#include "tools/run_words.h"

#include <cstring>

#include "daemon/correlate/step_clock.h"
#include "proto/wire/segment.h"

namespace nanwatch {

std::string StateOf(const SeenRun& run) {
  if (run.live) {
    switch (static_cast<wire::LiveState>(run.state.live_state())) {
      case wire::LiveState::kStarting:
        return "starting";
      case wire::LiveState::kWatching:
        return "watching";
      case wire::LiveState::kSteppedDown:
        return "stepped down";
      case wire::LiveState::kExited:
        return "exiting";
    }
    return "live";
  }
  if (run.is_silent) return "silent";
  if (run.state.has_signal()) {
    const char* name = sigabbrev_np(run.state.signal());
    return name != nullptr ? "ended, SIG" + std::string(name)
                           : "ended, signal " + std::to_string(run.state.signal());
  }
  if (run.state.has_exit_code()) return "ended, " + std::to_string(run.state.exit_code());
  return "ended";
}

int64_t StepOf(const SeenRun& run) {
  RunFacts facts;
  *facts.mutable_run() = run.run;
  *facts.mutable_state() = run.state;
  for (const StepSummary& step : run.newest_steps) *facts.add_steps_read() = step;
  return StepClock(facts).Read(run.state.clocks()).step;
}

}  // namespace nanwatch
