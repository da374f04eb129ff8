// SPDX-License-Identifier: Apache-2.0
// Runs a program that answers a question and ends.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tools/environment_block.h"

namespace nanwatch {

struct ProgramOutput {
  bool ended_well = false;  // exit status 0, in time
  bool timed_out = false;
  std::string text;  // its stdout, at most 64 KiB
};

// `argv[0]` is a path. stdin is empty and stderr dropped; killed after `timeout`. The preload
// library is taken out of its environment.
[[nodiscard]] ProgramOutput RunAndRead(const std::vector<std::string>& argv,
                                       const EnvironmentBlock& outside,
                                       std::chrono::milliseconds timeout);

}  // namespace nanwatch
