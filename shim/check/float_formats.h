// SPDX-License-Identifier: Apache-2.0
// How vectors of elements become vectors of float: for loops that add up what elements are, where
// all of them are finite. Two half formats become float exactly.
//
// For check's own sources alone; each includes it in its anonymous namespace's place, compiled for
// the instruction set of the function that calls it (always_inline).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace nanwatch {
namespace {

// Vectors that the instruction set has: wider ones GCC keeps in memory.
template <size_t kBytes>
struct Vectors {
  static constexpr size_t kLanes = kBytes / sizeof(float);
  using Floats [[gnu::vector_size(kBytes)]] = float;
  using Words32 [[gnu::vector_size(kBytes)]] = uint32_t;
  using Words16 [[gnu::vector_size(kBytes / 2)]] = uint16_t;
};

// Each loads a vector of elements, or one. By reference: vectors are passed otherwise at each
// width.
struct Float32 {
  using Word = uint32_t;
  template <typename V>
  [[gnu::always_inline]] static void Load(const unsigned char* from,
                                          typename V::Floats& lanes) noexcept {
    std::memcpy(&lanes, from, sizeof lanes);
  }
  static float One(Word word) noexcept { return __builtin_bit_cast(float, word); }
};
struct BFloat16 {
  using Word = uint16_t;
  template <typename V>
  [[gnu::always_inline]] static void Load(const unsigned char* from,
                                          typename V::Floats& lanes) noexcept {
    typename V::Words16 words;
    std::memcpy(&words, from, sizeof words);
    const typename V::Words32 bits = __builtin_convertvector(words, typename V::Words32) << 16;
    std::memcpy(&lanes, &bits, sizeof lanes);
  }
  static float One(Word word) noexcept {
    return __builtin_bit_cast(float, static_cast<uint32_t>(word) << 16);
  }
};
// The magnitude of a float16: exponent and mantissa in float's places, then the difference of the
// biases by a multiplication, which is right for subnormals too. Inf becomes 65536, NaN a number:
// the caller has looked for those.
struct Float16Magnitude {
  using Word = uint16_t;
  template <typename V>
  [[gnu::always_inline]] static void Load(const unsigned char* from,
                                          typename V::Floats& lanes) noexcept {
    typename V::Words16 words;
    std::memcpy(&words, from, sizeof words);
    const typename V::Words32 bits = (__builtin_convertvector(words, typename V::Words32) & 0x7FFF)
                                     << 13;
    std::memcpy(&lanes, &bits, sizeof lanes);
    lanes *= 0x1p112f;
  }
  static float One(Word word) noexcept {
    return __builtin_bit_cast(float, static_cast<uint32_t>(word & 0x7FFF) << 13) * 0x1p112f;
  }
};
// The same with its sign.
struct Float16 {
  using Word = uint16_t;
  template <typename V>
  [[gnu::always_inline]] static void Load(const unsigned char* from,
                                          typename V::Floats& lanes) noexcept {
    Float16Magnitude::Load<V>(from, lanes);
    typename V::Words16 words;
    std::memcpy(&words, from, sizeof words);
    typename V::Words32 bits;
    std::memcpy(&bits, &lanes, sizeof bits);
    bits |= (__builtin_convertvector(words, typename V::Words32) & 0x8000) << 16;
    std::memcpy(&lanes, &bits, sizeof lanes);
  }
  static float One(Word word) noexcept {
    const float magnitude = Float16Magnitude::One(word);
    return (word & 0x8000) != 0 ? -magnitude : magnitude;
  }
};

}  // namespace
}  // namespace nanwatch
