// SPDX-License-Identifier: Apache-2.0
// The checks of `doctor`. Each result is a line that says what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/environment_block.h"

namespace nanwatch {

enum class Health { kOk, kWarn, kFail };

struct Check {
  std::string name;
  Health health;
  std::string text;
};
using Checks = std::vector<Check>;

// How many processes of a job will have a segment on this host: LOCAL_WORLD_SIZE or
// SLURM_NTASKS_PER_NODE where a launcher says so, else one for each GPU, else one for each core.
struct ExpectedRanks {
  int count = 1;
  std::string source;  // "LOCAL_WORLD_SIZE", "GPUs here", ...
};
[[nodiscard]] ExpectedRanks GuessRanks(const EnvironmentBlock& outside, int gpus, int cores);

// Whether a file system with this much free space (`total_bytes` 0: unlimited) can hold the
// segments of so many processes.
[[nodiscard]] Check JudgeRoom(uint64_t free_bytes, uint64_t total_bytes,
                              const ExpectedRanks& ranks);

// Everything that decides whether a job of `named_python` ("": the one on PATH) started with our
// environment would be observed. Runs that Python once; makes the state directory, as the daemon
// would; changes nothing else. `ranks`: processes with torch on this host; 0: guess.
[[nodiscard]] Checks Examine(const std::string& named_python, int ranks);

}  // namespace nanwatch
