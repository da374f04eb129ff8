// SPDX-License-Identifier: Apache-2.0
// A part of a tensor's memory that is read where reading all would cost too much: one page of
// sixteen, and other pages at the next turn.
//
// Pages are counted from the tensor's first byte. After kSampleTurns turns each has been read once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/check/magnitude.h"
#include "shim/check/tensor_view.h"

namespace nanwatch {

inline constexpr uint64_t kSamplePageBytes = 4096;
inline constexpr uint32_t kSampleTurns = 16;

// Looks at the pages of turn `turn` among `count` elements that lie side by side from `data`. What
// it says of the magnitude is of these pages alone.
[[nodiscard]] Magnitude LookAtPages(wire::ElementType type, const void* data, size_t count,
                                    uint32_t turn) noexcept;

// How many bytes that reads.
[[nodiscard]] uint64_t BytesOfPages(uint64_t bytes, uint32_t turn) noexcept;

// Whose turn it is, for tensors of each size by themselves. Of sixteen tensors of one size, counted
// from the first, each has another turn. Their order changes from sixteen to sixteen: an op that is
// the third of sixteen in every step does not meet the same pages in every step.
//
// One thread. Zeroed memory is a fresh object.
class SampleTurns {
 public:
  [[nodiscard]] uint32_t Next(uint64_t bytes) noexcept;

  // Sizes that are counted by themselves; one more takes the place of another.
  static constexpr uint32_t kSizes = 64;

 private:
  struct Counted {
    uint64_t bytes;
    uint64_t seen;
  };
  Counted counted_[kSizes];
};

}  // namespace nanwatch
