// SPDX-License-Identifier: Apache-2.0
// How large the values of a tensor are, as far as the scan for non-finite ones learns it on its
// way, at no price of its own.
//
// Two registers, and bits alone: it is made for every op, in the job's floating-point modes.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"

namespace nanwatch {

struct Magnitude {
  enum class Kind : uint32_t {
    kNone,       // nothing is known, or there are no elements
    kLargest,    // `bits`: the largest magnitude, as a word of the element's parts without its sign
    kAtLeast,    // the same of a sample of the elements: one that large was seen
    kNonFinite,  // something is NaN or infinite
  };
  uint64_t bits;
  Kind kind;

  [[nodiscard]] constexpr bool IsNonFinite() const noexcept { return kind == Kind::kNonFinite; }
};

// The number meant, for kLargest and kAtLeast (float64: to 20 bits of its fraction, downwards),
// else 0. Any thread; the job's floating-point modes and flags stay as they are.
[[nodiscard]] double LargestValue(Magnitude magnitude, wire::ElementType type) noexcept;

}  // namespace nanwatch
