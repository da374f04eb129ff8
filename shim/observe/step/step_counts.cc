// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/step_counts.h"

#include <algorithm>

#include "proto/wire/optimizer_habit.h"

namespace nanwatch {

bool StepCounts::HasRetired(const Optimizer& optimizer, const wire::Clocks& clocks) noexcept {
  return wire::HasRetired(clocks.optimizer_ranges - optimizer.last, optimizer.longest_gap);
}

uint32_t StepCounts::NumberOf(const void* identity, uint64_t class_hash, wire::Clocks* clocks,
                              bool* is_new) noexcept {
  *is_new = false;
  uint32_t number = kOptimizersMax;  // of the one that was silent longest of those retired
  for (uint32_t i = 0; i < count_; ++i) {
    const Optimizer& known = optimizers_[i];
    if (known.class_hash == class_hash && known.identity == identity) return i;
    const bool longer = number == kOptimizersMax || known.last < optimizers_[number].last;
    if (longer && HasRetired(known, *clocks)) number = i;
  }
  if (count_ < kOptimizersMax) number = count_++;
  if (number == kOptimizersMax) return kOptimizersMax - 1;
  Optimizer& made = optimizers_[number];
  if (made.place != 0) holders_[made.place - 1] = 0;
  made = {};
  made.identity = identity;
  made.class_hash = class_hash;
  made.last = clocks->optimizer_ranges;
  if (places_taken_ < kSlots) {
    made.place = ++places_taken_;
    holders_[made.place - 1] = number + 1;
  }
  ++clocks->optimizer_count;
  *is_new = true;
  return number;
}

void StepCounts::TakePlaceOfRetired(uint32_t number, const wire::Clocks& clocks) noexcept {
  uint32_t place = 0;
  uint32_t last = 0;
  for (uint32_t i = 0; i < kSlots; ++i) {
    const uint32_t holder = holders_[i];
    const uint32_t acted = holder == 0 ? 0 : optimizers_[holder - 1].last;
    if (holder != 0 && !HasRetired(optimizers_[holder - 1], clocks)) continue;
    if (place != 0 && acted >= last) continue;
    place = i + 1;
    last = acted;
  }
  if (place == 0) return;
  if (holders_[place - 1] != 0) optimizers_[holders_[place - 1] - 1].place = 0;
  holders_[place - 1] = number + 1;
  optimizers_[number].place = place;
}

void StepCounts::Complete(uint32_t number, wire::Clocks* clocks) noexcept {
  Optimizer& optimizer = optimizers_[number];
  const uint32_t ranges = ++clocks->optimizer_ranges;
  const uint32_t gap = ranges - optimizer.last;
  if (optimizer.steps == 0) {
    optimizer.longest_gap = std::min(ranges, wire::kFirstGapMax);
  } else {
    optimizer.longest_gap = optimizer.steps == 1 ? gap : std::max(optimizer.longest_gap, gap);
  }
  optimizer.last = ranges;
  ++optimizer.steps;
  if (optimizer.place == 0) TakePlaceOfRetired(number, *clocks);
  if (optimizer.place != 0) clocks->optimizer_steps[optimizer.place - 1] = optimizer.steps;
}

}  // namespace nanwatch
