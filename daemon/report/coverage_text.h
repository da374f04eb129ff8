// SPDX-License-Identifier: Apache-2.0
// How much was watched, in words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "verdict.pb.h"

namespace nanwatch {

// What it means that summaries of steps were lost.
inline constexpr std::string_view kSummariesLost =
    "steps came faster than they were read: loss and gradient norm have gaps, findings have none";

// "118 steps, 61,204 tensors, 0 records lost, ...": the last row of every report.
[[nodiscard]] std::string WatchedText(const Verdict& verdict);

// What a reason of Coverage.unchecked means.
[[nodiscard]] std::string_view MeaningOfUnchecked(const std::string& reason);

// "overhead 1.2 % (0.8 .. 1.9)", or that it was not measured.
[[nodiscard]] std::string OverheadText(const Coverage& coverage);

// Steps at this level. Those that were off to measure the overhead count as idle ones, and are
// left out.
[[nodiscard]] uint64_t StepsAtLevel(const Coverage& coverage, const std::string& level);

// The first eight digits of a run's id, as people type it.
[[nodiscard]] std::string ShortId(const std::string& id);

}  // namespace nanwatch
