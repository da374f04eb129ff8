// SPDX-License-Identifier: Apache-2.0
// A run's facts in the words that every verb uses for them.
#pragma once

#include <cstdint>
#include <string>

#include "tools/observations.h"

namespace nanwatch {

// "starting", "watching", "stepped down", "exiting", "silent"; "ended", and how if that is known.
[[nodiscard]] std::string StateOf(const SeenRun& run);

// Optimizer steps done so far, -1 when that is not known.
[[nodiscard]] int64_t StepOf(const SeenRun& run);

}  // namespace nanwatch
