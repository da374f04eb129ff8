// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/run_end.h"

#include <algorithm>
#include <csignal>

namespace nanwatch {
namespace {

// The status of a process that was asked to end, and ends itself, is by custom 128 + the signal.
constexpr int kStatusOfSignal = 128;

// An exception that nobody caught: known of each process of a job, where the exit status is that of
// one.
bool Failed(const RunFacts& facts) {
  return std::any_of(facts.records().begin(), facts.records().end(), [](const Record& record) {
    return record.has_end() && record.end().failed();
  });
}

}  // namespace

bool WasKilled(const RunState& state) {
  if (state.has_signal()) return state.signal() != SIGINT;
  return state.has_exit_code() && (state.exit_code() == kStatusOfSignal + SIGTERM ||
                                   state.exit_code() == kStatusOfSignal + SIGKILL);
}

bool EndedWithError(const RunFacts& facts) {
  const RunState& state = facts.state();
  if (state.has_signal() || WasKilled(state)) return false;
  return state.has_exit_code() ? state.exit_code() != 0 : Failed(facts);
}

bool EndedWell(const RunState& state) {
  return state.ended() && state.has_exit_code() && state.exit_code() == 0 && !state.has_signal();
}

bool EndedByBadValue(const RunFacts& facts) {
  return std::any_of(facts.records().begin(), facts.records().end(), [](const Record& record) {
    return record.has_end() && record.end().failed_by_bad_value();
  });
}

}  // namespace nanwatch
