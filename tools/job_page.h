// SPDX-License-Identifier: Apache-2.0
// The page of a job, made of all that is known of it now.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/report/page/page_document.h"
#include "tools/observations.h"
#include "verdict.pb.h"

namespace nanwatch {

// Every step that is kept of each of these runs, in the order of the runs. `before_each` hears how
// many runs are done.
[[nodiscard]] std::vector<RunSeries> SeriesOfRuns(
    const std::vector<RunFacts>& facts, Observations& observations,
    const std::function<void(size_t done)>& before_each = nullptr);

// `facts`: with snapshots (FactsWithStatsOfJob); `verdict`: concluded from them.
[[nodiscard]] PageFacts PageFactsOf(const std::string& job, const std::vector<RunFacts>& facts,
                                    const Verdict& verdict, Observations& observations);

// The page as a file of its own.
[[nodiscard]] std::string PageFile(const PageFacts& facts);

}  // namespace nanwatch
