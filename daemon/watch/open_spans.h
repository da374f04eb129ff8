// SPDX-License-Identifier: Apache-2.0
// Divides the part of a run that is not settled yet into trainings.
//
// Optimizers share their steps only if they take turns. Each is active from its first to its last
// update in this part. Those whose times overlap form a group, and groups follow one another:
//
//   acts      A A A A A A B B C D D C D D C
//   groups    |----A----->|-B>|--- C, D --->
//
// Within a group, the optimizer that acts least closes the cycle; only acts since all of them began
// count. Among equals it is the one that began last. An optimizer that acted twice or more without
// a break takes no turns and closes nobody's cycle. Those below 1/32 of the busiest are passed
// over.
//
// If the closing optimizer joined late, the others count the steps before, and it counts on:
//
//   acts      A A A A A A A B A B A B
//   spans     |--- A ---->|--- B --->     steps 0 to 5, then 6, 7, 8
//
// Where the acts so far allow another reading, the span is `ambiguous`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "statistics.pb.h"

namespace nanwatch {

struct OpenSpans {
  std::vector<StepSpan> spans;  // oldest first
  uint64_t cycles = 0;          // closed in all, those before this part included
};

// `until`: as it was at this slot's last act; null: as it is now.
[[nodiscard]] OpenSpans DivideOpen(const StepCycles& cycles, const StepSlot* until);

// Counts do not fall below 0.
[[nodiscard]] inline uint32_t Less(uint32_t from, uint32_t what) {
  return from - std::min(from, what);
}

// Acts of a slot's optimizers in the part that lasts.
[[nodiscard]] uint32_t ActsInSpan(const StepCycles& cycles, int slot);

}  // namespace nanwatch
