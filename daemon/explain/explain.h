// Why it happened and what to do: known causes, looked up for each incident's origin; and what of it the user's own
// rules call expected.
//
// The causes stand in patterns.json, which is compiled in: a new one needs no code, only an entry
// and a test case. Pure, no state, safe from any thread; an incident that fits no pattern is left
// without one.
#pragma once

#include <string_view>
#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

// Fills `pattern` of every incident whose cause is known. The first pattern that fits wins.
void Explain(Verdict& verdict);

// Correlate(), Explain(), and the rules that the job was started with (ignore_rules.h): the verdict as people and
// documents get it. Rules that cannot be applied are named in `rule_problems`.
[[nodiscard]] Verdict Diagnose(const std::vector<RunFacts>& runs);

// The same, with further rules.
[[nodiscard]] Verdict DiagnoseWithRules(const std::vector<RunFacts>& runs,
                                        std::string_view further_rules);

}  // namespace nanwatch
