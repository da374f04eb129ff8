// SPDX-License-Identifier: Apache-2.0
// When an optimizer has acted for the last time: what both sides take for it, so that a count of
// Clocks::optimizer_steps means the same to them.
//
// Times are counted in Clocks::optimizer_ranges, the completed steps of all optimizers.
#pragma once

#include <cstdint>

namespace nanwatch::wire {

// Two silences as long as the longest one it ever broke, and so many steps more, because the first
// few of an optimizer tell little about its habit.
inline constexpr uint32_t kQuietStepsAllowed = 4;

[[nodiscard]] constexpr bool HasRetired(uint32_t silent, uint32_t longest_gap) noexcept {
  return silent > uint64_t{2} * longest_gap + kQuietStepsAllowed;
}

// One that acted once has no habit yet: it is given the time in which it did, but no more than that
// of a side optimizer that no step is told by (step_cycles.h).
inline constexpr uint32_t kFirstGapMax = 32;

}  // namespace nanwatch::wire
