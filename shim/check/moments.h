// SPDX-License-Identifier: Apache-2.0
// What the elements of a tensor are like together: what is told of a gradient and of an update.
//
// Pure functions of dense memory, any alignment, for float64, float32, bfloat16 and float16. All
// sums are made in double, so nothing overflows but float64 itself, and what cancels is right to
// about 1e-13 of the largest element. One core; a third of the speed of SumOfSquares.
#pragma once

#include "shim/check/tensor_view.h"

namespace nanwatch {

// Whether the two below take elements of this type; none of these is wider than a double.
[[nodiscard]] constexpr bool HasMoments(wire::ElementType type) noexcept {
  return type == wire::ElementType::kFloat64 || type == wire::ElementType::kFloat32 ||
         type == wire::ElementType::kFloat16 || type == wire::ElementType::kBFloat16;
}

// Of a tensor with a non-finite element, `sum`, `squares_sum` and `max_abs` are NaN or infinite.
struct Moments {
  double sum = 0;
  double squares_sum = 0;
  double max_abs = 0;
  uint64_t zeros = 0;  // elements that are zero, of either sign

  [[nodiscard]] double Mean(size_t count) const noexcept;
  // Of `count` - 1, as torch.std has it; 0 for one element.
  [[nodiscard]] double StandardDeviation(size_t count) const noexcept;
};

// False, with nothing filled in, for other types.
[[nodiscard]] bool MomentsOf(wire::ElementType type, const void* data, size_t count,
                             Moments* moments) noexcept;

struct Change {
  double before_squares = 0;  // sums of squares: of what was there,
  double change_squares = 0;  // and of what was added to it
};

// `before` and `after`: `count` elements each. False, with nothing filled in, for other types.
[[nodiscard]] bool ChangeOf(wire::ElementType type, const void* before, const void* after,
                            size_t count, Change* change) noexcept;

}  // namespace nanwatch
