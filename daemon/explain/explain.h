// SPDX-License-Identifier: Apache-2.0
// Why an incident happened and what to do: finds the known cause of each origin, and applies the
// user's rules for what is expected.
//
// The causes are in patterns.json, which is compiled in. A new one needs no code, only an entry and
// a test case. Pure, no state, safe from any thread. An incident that fits no pattern gets none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

// Fills `pattern` of every incident whose cause is known. The first pattern that fits wins.
void Explain(Verdict& verdict);

// Correlate(), Explain(), the rules that the job was started with (ignore_rules.h), early warnings
// (training_warnings.h) and the newest snapshot of parameters (parameter_reports.h): the verdict as
// people and documents get it. Rules that cannot be applied are named in `rule_problems`.
[[nodiscard]] Verdict Diagnose(const std::vector<RunFacts>& runs);

struct DiagnosisRequest {
  std::string further_rules = {};  // beside those of the job
  uint32_t explained = 0;  // number of the incident, from 1, whose reasons are wanted; 0: of none
  std::vector<UnwatchedProcess> unwatched = {};  // processes of the job that left no facts
};
struct Diagnosed {
  Verdict verdict;
  Explanation explanation;  // without steps when there is no incident of that number
};

// The same, with options.
[[nodiscard]] Diagnosed DiagnoseAsked(const std::vector<RunFacts>& runs,
                                      const DiagnosisRequest& request);

}  // namespace nanwatch
