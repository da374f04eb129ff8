// SPDX-License-Identifier: Apache-2.0
// Messages as JSON: the verdict document of CONTRACT ("nanwatch.verdict/1"), others, and parts of
// them. All JSON of the daemon and the tools has its numbers in the form that is given here.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// A number, or "NaN", "Infinity", "-Infinity", which JSON has no numbers for.
[[nodiscard]] nlohmann::ordered_json JsonNumber(double value);

// Field names are those of the .proto file, in its order; defaults are printed; what is not known
// (an absent optional or message) is null. Integers are JSON numbers, those of 64 bits too.
[[nodiscard]] nlohmann::ordered_json JsonOf(const google::protobuf::Message& message);

// The document as text: pretty-printed, two spaces, a newline at the end. Text that is not UTF-8 is
// repaired with U+FFFD. Never fails.
[[nodiscard]] std::string JsonReport(const Verdict& verdict);

// The explanation of one incident (nanwatch.explanation/1), likewise.
[[nodiscard]] std::string JsonExplanation(const Explanation& explanation);

// What was read of parameters (nanwatch.stats/1), likewise.
[[nodiscard]] std::string JsonStats(const StatsReport& report);

}  // namespace nanwatch
