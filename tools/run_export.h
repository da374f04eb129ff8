// SPDX-License-Identifier: Apache-2.0
// A job in the formats of other programs. Pure. What is not known is empty (csv) or null (jsonl);
// numbers that are not finite are NaN, Infinity and -Infinity.
#pragma once

#include <string>
#include <vector>

#include "daemon/report/page/run_series.h"
#include "verdict.pb.h"

namespace nanwatch {

// RFC 4180, with a line of names first; a line a step, run by run.
[[nodiscard]] std::string StepsCsv(const std::vector<RunSeries>& series);

// One object a line; "type" is run, step, incident, warning or snapshot.
[[nodiscard]] std::string JobJsonLines(const std::string& job, const std::vector<RunFacts>& facts,
                                       const Verdict& verdict,
                                       const std::vector<RunSeries>& series);

}  // namespace nanwatch
