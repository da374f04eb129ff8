// The verdict document of CONTRACT ("nanwatch.verdict/1") as JSON text.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// Pretty-printed, two spaces, a newline at the end. Field names are those of verdict.proto, in its
// order; defaults are printed; what is not known (an absent optional or message) is null;
// non-finite numbers are the strings "NaN", "Infinity", "-Infinity"; 64-bit integers are JSON
// numbers. Text that is not UTF-8 is repaired with U+FFFD. Never fails.
[[nodiscard]] std::string JsonReport(const Verdict& verdict);

// The explanation of one incident (nanwatch.explanation/1), likewise.
[[nodiscard]] std::string JsonExplanation(const Explanation& explanation);

// What was read of parameters (nanwatch.stats/1), likewise.
[[nodiscard]] std::string JsonStats(const StatsReport& report);

}  // namespace nanwatch
