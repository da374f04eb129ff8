// SPDX-License-Identifier: Apache-2.0
// The job of a `nanwatch run` that a launcher started once for each of its ranks.
#pragma once

#include <string>

#include "tools/environment_block.h"

namespace nanwatch {

// The id that all launchers of this launch find, or "" where `run` was started alone.
//
// A script that is one task of a step may call `run` several times, one after another. Each rank
// counts its own calls, in empty files of the segment directory, and the second call of every rank
// belongs to the job "4711.0-2". Where the file cannot be made the launch's id is the job.
[[nodiscard]] std::string JobOfLaunch(const EnvironmentBlock& environment,
                                      const std::string& segment_dir);

// Whether this `run` speaks for the ranks that a launcher started here: it is the first of its
// host, or no rank at all.
[[nodiscard]] bool SpeaksForRanks(const EnvironmentBlock& environment);

}  // namespace nanwatch
