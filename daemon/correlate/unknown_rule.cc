// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/unknown_rule.h"

#include <algorithm>

#include "daemon/correlate/wire_names.h"
#include "proto/wire/segment.h"

namespace nanwatch {
namespace {

constexpr auto kIdle = static_cast<uint32_t>(wire::Level::kIdle);
constexpr auto kAfterPoisoned = static_cast<int>(wire::Unchecked::kAfterPoisoned);
constexpr auto kAuto = static_cast<uint32_t>(wire::Level::kAuto);

// A process whose steps were left out though nobody asked for level `auto`. Steps with bad
// parameters are idle, too: what made these bad is known. So are steps whose checks were off to
// measure what they cost: the parameters and the optimizer's state are checked after them.
bool WasIdleByRequest(const RunFacts& facts) {
  const RunState& state = facts.state();
  const uint64_t idle =
      state.steps_watched_size() > static_cast<int>(kIdle) ? state.steps_watched(kIdle) : 0;
  const uint64_t poisoned =
      state.unchecked_size() > kAfterPoisoned ? state.unchecked(kAfterPoisoned) : 0;
  const bool is_auto = state.level() == kAuto || facts.run().level() == kAuto;
  // What ran last may be no whole step. One that never published says nothing of its level.
  const bool ended_idle = state.heartbeat_ns() != 0 && state.level() == kIdle;
  return (idle > poisoned + state.steps_off() || ended_idle) && !is_auto;
}

// A process that ended while its checks were off, to measure what they cost or by the choice of
// level auto, so that nobody has read what it left: it was killed, or a bad value in these last
// steps has ended it.
bool EndedUnchecked(const RunFacts& facts) {
  return facts.state().ended() && facts.state().off_now();
}

// What became of processes without facts, the weightiest first.
constexpr const char* kRanUnwatched[] = {"switched_off", "not_preloaded", "no_room", "no_observer",
                                         "not_started"};
constexpr const char* kMayHaveDoneNothing[] = {"no_ops", "ended_early", "import_failed"};

template <size_t N>
std::string FirstReason(const Verdict& verdict, const char* const (&reasons)[N]) {
  for (const char* reason : reasons) {
    for (const UnwatchedProcess& process : verdict.unwatched()) {
      if (process.reason() == reason) return reason;
    }
  }
  return "";
}

bool SawBadValues(const std::vector<RunFacts>& runs) {
  return std::any_of(runs.begin(), runs.end(),
                     [](const RunFacts& facts) { return facts.state().values_bad() > 0; });
}

}  // namespace

std::string UnknownBecause(const std::vector<RunFacts>& runs, const Verdict& verdict) {
  const std::string unwatched = FirstReason(verdict, kRanUnwatched);
  if (!unwatched.empty()) return unwatched;
  if (runs.empty()) {
    const std::string idle = FirstReason(verdict, kMayHaveDoneNothing);
    return idle.empty() ? "no_run" : idle;
  }
  if (verdict.coverage().tensors_checked() == 0) return "nothing_checked";
  if (UncheckedOnDevices(verdict.coverage()) > verdict.coverage().tensors_checked()) {
    return "device_not_checked";
  }
  if (verdict.coverage().lost_events() > 0) return "records_lost";
  if (verdict.coverage().records_thinned() > 0) return "records_left_out";
  if (verdict.incidents().empty() && SawBadValues(runs)) return "values_not_kept";
  if (std::any_of(runs.begin(), runs.end(), WasIdleByRequest) ||
      std::any_of(runs.begin(), runs.end(), EndedUnchecked)) {
    return "steps_not_checked";
  }
  return "";
}

uint64_t UncheckedOnDevices(const Coverage& coverage) {
  uint64_t tensors = 0;
  for (const char* reason : {"other_device", "gpu_not_ready", "gpu_busy"}) {
    const auto found = coverage.unchecked().find(reason);
    if (found != coverage.unchecked().end()) tensors += found->second;
  }
  return tensors;
}

uint64_t IdleSteps(const Coverage& coverage) {
  const auto found = coverage.steps_watched().find(LevelName(kIdle));
  return found == coverage.steps_watched().end() ? 0 : found->second;
}

uint64_t StepsOffToMeasure(const Coverage& coverage) {
  const auto found = coverage.unchecked().find(kUncheckedToMeasure);
  return found == coverage.unchecked().end() ? 0 : found->second;
}

uint64_t CountedSteps(const Coverage& coverage) {
  uint64_t steps = 0;
  for (const auto& [level, count] : coverage.steps_watched()) steps += count;
  return steps;
}

}  // namespace nanwatch
