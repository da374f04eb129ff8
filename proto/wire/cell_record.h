// SPDX-License-Identifier: Apache-2.0
// A notebook cell in which steps were taken, recorded as a LevelRecord (record.h) whose level does
// not change: a reader that does not know of it sees a change of no level, and its reason is
// unknown.
//
// Written behind the cell's first step. Its clocks count that step; `control` is when the cell
// began (CLOCK_MONOTONIC), and `full_every` is its number, that of In[7].
#pragma once

#include <cstdint>

namespace nanwatch::wire {

inline constexpr uint8_t kLevelWhyCell = 255;  // LevelRecord.why

// StepEntry.flags: the first step of a cell. It has no time of its own.
inline constexpr uint32_t kStepBeginsCell = 8;

}  // namespace nanwatch::wire
