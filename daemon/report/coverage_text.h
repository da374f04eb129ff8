// SPDX-License-Identifier: Apache-2.0
// How much was watched, in words.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// "118 steps, 61,204 tensors, 0 records lost, ...": the last row of every report.
[[nodiscard]] std::string WatchedText(const Verdict& verdict);

// The first eight digits of a run's id, as people type it.
[[nodiscard]] std::string ShortId(const std::string& id);

}  // namespace nanwatch
