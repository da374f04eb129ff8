// SPDX-License-Identifier: Apache-2.0
// The squares of 16 bytes, added up in floats or in doubles; sum_list.h says why in which.
#pragma once

#include <cstdint>

#include "shim/device/check_list.h"

namespace nanwatch::device {

// The parts of 32-bit words as floats, which hold every float32, bfloat16 and float16.
template <wire::ElementType kType, class Memory>
struct FloatParts;
template <class Memory>
struct FloatParts<wire::ElementType::kFloat32, Memory> {
  static constexpr uint32_t kCount = 1;
  NANWATCH_BITS static float At(uint32_t word, uint32_t) noexcept {
    return __builtin_bit_cast(float, word);
  }
};
template <class Memory>
struct FloatParts<wire::ElementType::kBFloat16, Memory> {
  static constexpr uint32_t kCount = 2;
  NANWATCH_BITS static float At(uint32_t word, uint32_t i) noexcept {
    return __builtin_bit_cast(float, i == 0 ? word << 16 : word & 0xffff0000);
  }
};
template <class Memory>
struct FloatParts<wire::ElementType::kFloat16, Memory> {
  static constexpr uint32_t kCount = 2;
  NANWATCH_BITS static float At(uint32_t word, uint32_t i) noexcept {
    return Memory::FloatOfHalf(static_cast<uint16_t>(i == 0 ? word : word >> 16));
  }
};

inline constexpr float kFloatSumMin = 0x1p-120f;

template <class Parts>
NANWATCH_BITS float SquaresOfWord(uint32_t word) noexcept {
  const float first = Parts::At(word, 0);
  if constexpr (Parts::kCount == 1) return first * first;
  const float second = Parts::At(word, 1);
  return first * first + second * second;
}
template <class Parts>
NANWATCH_BITS float SquaresInFloat(const Vector& vector) noexcept {
  return (SquaresOfWord<Parts>(vector.word[0]) + SquaresOfWord<Parts>(vector.word[1])) +
         (SquaresOfWord<Parts>(vector.word[2]) + SquaresOfWord<Parts>(vector.word[3]));
}
template <class Parts>
NANWATCH_BITS double SquaresInDouble(const Vector& vector) noexcept {
  double squares = 0;
  NANWATCH_UNROLL
  for (const uint32_t word : vector.word) {
    NANWATCH_UNROLL
    for (uint32_t i = 0; i < Parts::kCount; ++i) {
      const double part = Parts::At(word, i);
      squares += part * part;
    }
  }
  return squares;
}

// One of the eight-byte halves of a vector.
NANWATCH_BITS double DoubleAt(const Vector& vector, uint32_t half) noexcept {
  return __builtin_bit_cast(double,
                            uint64_t{vector.word[2 * half + 1]} << 32 | vector.word[2 * half]);
}

}  // namespace nanwatch::device
