// SPDX-License-Identifier: Apache-2.0
// The checkpoints that the program saved, clean or bad.
#pragma once

#include <vector>

#include "daemon/correlate/lineage.h"
#include "verdict.pb.h"

namespace nanwatch {

// Of these, by when they were saved: the newest, and the last clean and the first bad one.
inline constexpr int kCheckpointsMax = 100;

void AddCheckpoints(const std::vector<Lineage>& runs, Verdict& verdict);

}  // namespace nanwatch
