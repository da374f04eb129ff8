// SPDX-License-Identifier: Apache-2.0
// Why it happened and what to do: known causes, looked up for each incident's origin; and what of
// it the user's own rules call expected.
//
// The causes stand in patterns.json, which is compiled in: a new one needs no code, only an entry
// and a test case. Pure, no state, safe from any thread; an incident that fits no pattern is left
// without one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

// Fills `pattern` of every incident whose cause is known. The first pattern that fits wins.
void Explain(Verdict& verdict);

// Correlate(), Explain(), the rules that the job was started with (ignore_rules.h), early warnings
// (training_warnings.h) and the newest look at parameters (parameter_reports.h): the verdict as
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

// The same, as somebody asks for it.
[[nodiscard]] Diagnosed DiagnoseAsked(const std::vector<RunFacts>& runs,
                                      const DiagnosisRequest& request);

}  // namespace nanwatch
