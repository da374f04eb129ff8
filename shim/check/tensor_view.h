// SPDX-License-Identifier: Apache-2.0
// What a check needs to know of a tensor: where its elements lie and how their bits are to be read.
//
// A view owns nothing and is valid as long as the arrays it points to. It shows memory, not values:
// a lazily conjugated or negated tensor holds the same set of non-finite elements, but the signs of
// the infinities (of the imaginary parts) are then the opposite; the caller swaps them.
//
// Where the memory is out of this processor's reach (a GPU's), the view carries what was counted
// there, and every question is answered by that.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/wire/record.h"

namespace nanwatch {

struct TensorView {
  const void* data = nullptr;  // the element at index 0 in every dimension; any alignment
  wire::ElementType type = wire::ElementType::kNone;
  int32_t ndim = 0;
  const int64_t* sizes = nullptr;  // `ndim` entries
  const int64_t* strides =
      nullptr;        // `ndim` entries, in elements; 0 (expanded) and negative allowed
  int64_t numel = 0;  // product of `sizes`
  // Not null: `data` is never read. Its element_type, shape and numel are those of the view.
  const wire::TensorStats* counted = nullptr;
};

// Bytes of one element (both parts of a complex one); 0 for kNone and for values that are no type.
[[nodiscard]] constexpr size_t ElementBytes(wire::ElementType type) noexcept {
  constexpr uint8_t kBytes[wire::kElementTypeCount] = {0, 8, 4, 2, 2, 16, 8, 4, 1, 1, 1, 1, 1};
  const auto index = static_cast<size_t>(type);
  return index < wire::kElementTypeCount ? kBytes[index] : 0;
}

// Of all elements together, wherever they lie.
[[nodiscard]] constexpr uint64_t BytesOf(const TensorView& view) noexcept {
  return static_cast<uint64_t>(view.numel) * ElementBytes(view.type);
}

// Whether its elements lie side by side in the order of their indices.
[[nodiscard]] constexpr bool IsRowMajor(const TensorView& view) noexcept {
  int64_t expected = 1;
  for (int dim = view.ndim - 1; dim >= 0; --dim) {
    if (view.sizes[dim] != 1 && view.strides[dim] != expected) return false;
    expected *= view.sizes[dim];
  }
  return true;
}

}  // namespace nanwatch
