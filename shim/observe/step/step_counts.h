// SPDX-License-Identifier: Apache-2.0
// The optimizers of a process and the counts of their steps: which of them have one of the four
// places of wire::Clocks, and which have retired and leave theirs to others.
//
// Bounded; what there is no room for is counted in `optimizer_ranges` alone. Not thread-safe: its
// owner's lock guards it.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"

namespace nanwatch {

class StepCounts {
 public:
  static constexpr uint32_t kOptimizersMax = 32;
  static constexpr uint32_t kSlots = 4;

  // The number of the optimizer with this identity and class. A new one is given a number of its
  // own, and a place if one was never taken. Once there are kOptimizersMax of them it is given that
  // of one that has retired, or the last one's where none has.
  uint32_t NumberOf(const void* identity, uint64_t class_hash, wire::Clocks* clocks,
                    bool* is_new) noexcept;
  // One more step of it is complete.
  void Complete(uint32_t number, wire::Clocks* clocks) noexcept;

  // Its place in Clocks::optimizer_steps, from 1; 0: it has none.
  [[nodiscard]] uint32_t IndexOf(uint32_t number) const noexcept {
    return optimizers_[number].place;
  }
  // Its completed steps.
  [[nodiscard]] uint32_t StepsOf(uint32_t number) const noexcept {
    return optimizers_[number].steps;
  }

  void set_class_name(uint32_t number, uint32_t name) noexcept {
    optimizers_[number].class_name = name;
  }
  [[nodiscard]] uint32_t class_name(uint32_t number) const noexcept {
    return optimizers_[number].class_name;
  }
  // Steps begun, complete or not.
  uint32_t Begin(uint32_t number) noexcept { return ++optimizers_[number].begun; }
  [[nodiscard]] uint32_t begun(uint32_t number) const noexcept { return optimizers_[number].begun; }

 private:
  struct Optimizer {
    const void* identity;
    uint64_t class_hash;
    uint32_t class_name;
    uint32_t begun;
    uint32_t steps;
    // In Clocks::optimizer_ranges: after its last step, or when it was first seen; and the longest
    // time between two steps.
    uint32_t last;
    uint32_t longest_gap;
    uint32_t place;
  };

  [[nodiscard]] static bool HasRetired(const Optimizer& optimizer,
                                       const wire::Clocks& clocks) noexcept;
  void TakePlaceOfRetired(uint32_t number, const wire::Clocks& clocks) noexcept;

  Optimizer optimizers_[kOptimizersMax] = {};
  uint32_t count_ = 0;
  uint32_t places_taken_ = 0;      // ever
  uint32_t holders_[kSlots] = {};  // number + 1 of the optimizer at each place; 0: nobody
};

}  // namespace nanwatch
