// SPDX-License-Identifier: Apache-2.0
// The sum of squares of a tensor's elements: what a gradient's norm is made of.
#pragma once

#include "shim/check/tensor_view.h"

namespace nanwatch {

struct Squares {
  double sum = 0;         // of the squares of all elements; not finite if one of them is not
  bool all_zero = false;  // every element is zero, not merely its square
};

// For float64, float32, bfloat16 and float16, in dense memory; false for others. At about
// the speed of memory, large memory in several threads (parallel.h); the sum is the same in any
// number of them, and the job's floating-point modes and flags stay as they are. Elements below
// 1e-23 (float32) may count as zero in `sum`.
[[nodiscard]] bool SumOfSquares(wire::ElementType type, const void* data, size_t count,
                                Squares* squares) noexcept;

}  // namespace nanwatch
