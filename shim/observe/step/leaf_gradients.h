// SPDX-License-Identifier: Apache-2.0
// Which gradients of leaves the autograd node that is running makes, by their sizes: those are left
// to the optimizer, where they are looked at anyway. For cuts of level layer (cuts.h).
#pragma once

#include <array>
#include <cstdint>

namespace nanwatch {

// Elements of each leaf whose gradient the running node makes, through a transposition or another
// view; 0 fills up.
using LeafSizes = std::array<int64_t, 4>;

[[nodiscard]] LeafSizes LeavesOfRunningNode();

}  // namespace nanwatch
