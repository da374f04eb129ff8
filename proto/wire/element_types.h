// SPDX-License-Identifier: Apache-2.0
// What both sides know of the types of elements.
#pragma once

#include <limits>

#include "proto/wire/record.h"

namespace nanwatch::wire {

[[nodiscard]] constexpr bool IsComplex(ElementType type) noexcept {
  return type == ElementType::kComplex32 || type == ElementType::kComplex64 ||
         type == ElementType::kComplex128;
}

// The largest finite number; of complex types, that of each part. 0 for kNone and what is no type.
[[nodiscard]] constexpr double LargestOf(ElementType type) noexcept {
  switch (type) {
    case ElementType::kFloat64:
    case ElementType::kComplex128:
      return std::numeric_limits<double>::max();
    case ElementType::kFloat32:
    case ElementType::kComplex64:
      return std::numeric_limits<float>::max();
    case ElementType::kFloat16:
    case ElementType::kComplex32:
      return 65504;
    case ElementType::kBFloat16:
      return 0x1.FEp127;
    case ElementType::kFloat8E5M2:
    case ElementType::kFloat8E5M2Fnuz:
      return 57344;
    case ElementType::kFloat8E4M3Fn:
      return 448;
    case ElementType::kFloat8E4M3Fnuz:
      return 240;
    case ElementType::kFloat8E8M0Fnu:
      return 0x1p127;
    case ElementType::kNone:
      break;
  }
  return 0;
}

}  // namespace nanwatch::wire
