// SPDX-License-Identifier: Apache-2.0
// What is said about a run as a whole: its identity card, and how much of it was watched.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

[[nodiscard]] RunInfo DescribeRun(const RunFacts& facts);

// The words of a command in one line, unquoted.
[[nodiscard]] std::string CommandLine(const google::protobuf::RepeatedPtrField<std::string>& words);

// Records that the job dropped, that no thread completed, or that could not be read.
[[nodiscard]] uint64_t LostRecords(const RunState& state);

// Volumes are summed over the runs; steps are those of the run that took most, because ranks step
// together.
[[nodiscard]] Coverage SumCoverage(const std::vector<RunFacts>& runs);

}  // namespace nanwatch
