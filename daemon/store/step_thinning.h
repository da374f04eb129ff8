// SPDX-License-Identifier: Apache-2.0
// Which steps of long ago may go, so that a picture of those that stay has every peak.
//
// Pure, no state, safe from any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "facts.pb.h"

namespace nanwatch {

// So many steps share their peaks.
inline constexpr size_t kThinnedTogether = 64;

// The places in `steps` (a run's, oldest first) of those that may go: every other one. Of each
// kThinnedTogether the smallest and the largest of each figure stay, and the first where one was
// not finite, where a gradient was bad, and where flags changed. At least a tenth of them goes.
[[nodiscard]] std::vector<size_t> StepsToDrop(const std::vector<StepSummary>& steps);

}  // namespace nanwatch
