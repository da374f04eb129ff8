// Why it happened and what to do: known causes, looked up for each incident's origin.
//
// The causes stand in patterns.json, which is compiled in: a new one needs no code, only an entry
// and a test case. Pure, no state, safe from any thread; an incident that fits no pattern is left
// without one.
#pragma once

#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

// Fills `pattern` of every incident whose cause is known. The first pattern that fits wins.
void Explain(Verdict& verdict);

// Correlate(), then Explain(): the verdict as people and documents get it.
[[nodiscard]] Verdict Diagnose(const std::vector<RunFacts>& runs);

}  // namespace nanwatch
