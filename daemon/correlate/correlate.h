// SPDX-License-Identifier: Apache-2.0
// From the facts of a job to its verdict: origin, reach, incidents, severity, coverage.
//
// A pure function: no clock, no file, no state, nothing kept. Facts come from a process that may
// have died mid-sentence, so any id may dangle and any list may be short; what cannot be known is
// left unknown (step -1, layer "", exact false), never guessed. Safe from any thread; linear in the
// number of records.
#pragma once

#include <string>
#include <vector>

#include "daemon/correlate/incident_key.h"
#include "verdict.pb.h"

namespace nanwatch {

// `runs`: every process of one job, in any order. Without runs the verdict is `unknown`, with
// `runs` empty and no coverage. Patterns are not looked up here: see daemon/explain/explain.h,
// whose Diagnose() does both.
[[nodiscard]] Verdict Correlate(const std::vector<RunFacts>& runs);

struct Correlation {
  Verdict verdict;
  // What `excused` must hold to excuse the verdict's incidents, in their order.
  std::vector<std::string> excuse_keys;
  // How the incident that was asked about followed from the records; no steps when there is none of
  // that number.
  Explanation explanation;
};

// The same, with origins that a rule of the user's excuses: their incidents are `expected`,
// whatever they reached, and say by which rule. `explained` is the number of an incident, from 1,
// whose reasons are wanted too; 0: of none. `unwatched`: processes of the job that left no facts.
[[nodiscard]] Correlation Correlate(const std::vector<RunFacts>& runs, const Excused& excused,
                                    uint32_t explained = 0,
                                    const std::vector<UnwatchedProcess>& unwatched = {});

}  // namespace nanwatch
