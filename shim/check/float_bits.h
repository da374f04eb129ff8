// SPDX-License-Identifier: Apache-2.0
// How each element type writes NaN and infinity, and the tests for them, on integers alone.
//
// Every format has one test of the form
//     ((word & kMask) ^ kFlip) > kLimit        as unsigned integers of the word's width
// which a vector unit answers for a whole block by one running maximum. Worked example, float32:
// the mask drops the sign, nothing is flipped, and what is above the largest finite magnitude
// 0x7f7fffff is an infinity (0x7f800000) or a NaN (above that). Worked example, e4m3fnuz, where
// 0x80, the place of negative zero, is the only NaN: 0x80 ^ 0x7f = 0xff, every other word gives
// less, so the limit is 0xfe.
//
// The functions are always inlined. The files compiled for a wider instruction set include this
// header, and an out-of-line copy from one of them, merged by the linker, would run on processors
// without that set; for the same reason the builtin stands here in place of std::bit_cast. They are
// constant expressions and, under a CUDA compiler, device functions as well.
#pragma once

#include <cstdint>
#include <type_traits>

#include "proto/wire/record.h"

#ifdef __CUDACC__
#define NANWATCH_BITS __host__ __device__ __forceinline__
#else
#define NANWATCH_BITS [[gnu::always_inline]] inline
#endif

namespace nanwatch {

enum class NanStyle : uint8_t {
  kIeee,          // the highest exponent: mantissa 0 is infinity, the rest NaN
  kAllOnes,       // no infinity; NaN has every bit but the sign set ("fn")
  kNegativeZero,  // no infinity, no negative zero; its word is the only NaN ("fnuz")
  kUnsigned,      // no sign, no infinity; NaN has every bit set ("fnu")
};

template <class WordType, int kExponentBits, int kMantissaBits, int kBias, NanStyle kStyle>
struct FloatFormat {
  using Word = WordType;
  // Wide enough for every word's place on the number line, see ToKey.
  using Key = std::conditional_t<sizeof(Word) == 8, int64_t, int32_t>;

  static constexpr bool kHasInf = kStyle == NanStyle::kIeee;
  static constexpr bool kHasSign = kStyle != NanStyle::kUnsigned;
  static constexpr Word kOnes = static_cast<Word>(~Word{0});
  static constexpr Word kMagnitude = kHasSign ? static_cast<Word>(kOnes >> 1) : kOnes;
  static constexpr Word kSign = static_cast<Word>(~kMagnitude);
  static constexpr Word kInfinity =
      kHasInf ? static_cast<Word>(((Word{1} << kExponentBits) - 1) << kMantissaBits) : Word{0};

  static constexpr Word kMask = kStyle == NanStyle::kNegativeZero ? kOnes : kMagnitude;
  static constexpr Word kFlip = kStyle == NanStyle::kNegativeZero ? kMagnitude : Word{0};
  static constexpr Word kLimit = kHasInf                             ? Word(kInfinity - 1)
                                 : kStyle == NanStyle::kNegativeZero ? Word(kOnes - 1)
                                                                     : Word(kMagnitude - 1);

  NANWATCH_BITS static constexpr bool IsNonFinite(Word word) noexcept {
    return static_cast<Word>((word & kMask) ^ kFlip) > kLimit;
  }
  NANWATCH_BITS static constexpr bool IsNan(Word word) noexcept {
    if constexpr (kHasInf) return static_cast<Word>(word & kMagnitude) > kInfinity;
    return IsNonFinite(word);
  }
  NANWATCH_BITS static constexpr bool IsPosInf(Word word) noexcept {
    return kHasInf && word == kInfinity;
  }
  NANWATCH_BITS static constexpr bool IsNegInf(Word word) noexcept {
    return kHasInf && word == static_cast<Word>(kInfinity | kSign);
  }
  // kHasNan, kHasPosInf, kHasNegInf, or 0.
  NANWATCH_BITS static constexpr uint8_t Kinds(Word word) noexcept {
    return static_cast<uint8_t>((IsNan(word) ? wire::kHasNan : 0) |
                                (IsPosInf(word) ? wire::kHasPosInf : 0) |
                                (IsNegInf(word) ? wire::kHasNegInf : 0));
  }

  // An integer that orders finite words as their values are ordered (both zeros give 0), so that
  // minimum and maximum need no floating-point comparison, which would take subnormals for zero in
  // some modes.
  NANWATCH_BITS static constexpr Key ToKey(Word word) noexcept {
    const Key magnitude = static_cast<Key>(word & kMagnitude);
    return (word & kSign) != 0 ? -magnitude : magnitude;
  }
  NANWATCH_BITS static constexpr double KeyToDouble(Key key) noexcept {
    const uint64_t sign = key < 0 ? uint64_t{1} << 63 : 0;
    return __builtin_bit_cast(double,
                              MagnitudeAsDouble(static_cast<Word>(key < 0 ? -key : key)) | sign);
  }
  // Exact for finite words, 0 for others. Free of branches, so that a loop over it becomes vector
  // code.
  NANWATCH_BITS static constexpr double ToDouble(Word word) noexcept {
    const auto magnitude = static_cast<Word>(word & kMagnitude);
    const uint64_t sign = uint64_t{static_cast<Word>(word & kSign)} << (64 - 8 * sizeof(Word));
    const uint64_t finite = uint64_t{IsNonFinite(word)} - 1;
    return __builtin_bit_cast(double, (MagnitudeAsDouble(magnitude) | sign) & finite);
  }

 private:
  // Bits of the double.
  NANWATCH_BITS static constexpr uint64_t MagnitudeAsDouble(Word magnitude) noexcept {
    if constexpr (sizeof(Word) == 8) {
      return magnitude;
    } else {
      // Normal: the same mantissa under double's bias. Subnormal: an integer times a power of two.
      // A word of e8m0 is an exponent alone and has no subnormals.
      const uint64_t normal =
          (uint64_t{magnitude} << (52 - kMantissaBits)) + (uint64_t{1023 - kBias} << 52);
      if constexpr (kMantissaBits == 0) return normal;
      constexpr double kUnit =
          __builtin_bit_cast(double, uint64_t{1023 + 1 - kBias - kMantissaBits} << 52);
      const auto subnormal = __builtin_bit_cast(uint64_t, static_cast<int32_t>(magnitude) * kUnit);
      const uint64_t is_subnormal = -uint64_t{magnitude >> kMantissaBits == 0};
      return (subnormal & is_subnormal) | (normal & ~is_subnormal);
    }
  }
};

// The format of an element's parts. A complex element is two of them, real and imaginary.
template <wire::ElementType kType>
struct FormatOf;
template <>
struct FormatOf<wire::ElementType::kFloat64>
    : FloatFormat<uint64_t, 11, 52, 1023, NanStyle::kIeee> {};
template <>
struct FormatOf<wire::ElementType::kFloat32> : FloatFormat<uint32_t, 8, 23, 127, NanStyle::kIeee> {
};
template <>
struct FormatOf<wire::ElementType::kFloat16> : FloatFormat<uint16_t, 5, 10, 15, NanStyle::kIeee> {};
template <>
struct FormatOf<wire::ElementType::kBFloat16> : FloatFormat<uint16_t, 8, 7, 127, NanStyle::kIeee> {
};
template <>
struct FormatOf<wire::ElementType::kComplex128> : FormatOf<wire::ElementType::kFloat64> {};
template <>
struct FormatOf<wire::ElementType::kComplex64> : FormatOf<wire::ElementType::kFloat32> {};
template <>
struct FormatOf<wire::ElementType::kComplex32> : FormatOf<wire::ElementType::kFloat16> {};
template <>
struct FormatOf<wire::ElementType::kFloat8E5M2> : FloatFormat<uint8_t, 5, 2, 15, NanStyle::kIeee> {
};
template <>
struct FormatOf<wire::ElementType::kFloat8E4M3Fn>
    : FloatFormat<uint8_t, 4, 3, 7, NanStyle::kAllOnes> {};
template <>
struct FormatOf<wire::ElementType::kFloat8E5M2Fnuz>
    : FloatFormat<uint8_t, 5, 2, 16, NanStyle::kNegativeZero> {};
template <>
struct FormatOf<wire::ElementType::kFloat8E4M3Fnuz>
    : FloatFormat<uint8_t, 4, 3, 8, NanStyle::kNegativeZero> {};
template <>
struct FormatOf<wire::ElementType::kFloat8E8M0Fnu>
    : FloatFormat<uint8_t, 8, 0, 127, NanStyle::kUnsigned> {};

// Parts of an element of `type`: 2 for the complex ones, else 1.
NANWATCH_BITS constexpr int PartsOf(wire::ElementType type) noexcept {
  return type == wire::ElementType::kComplex128 || type == wire::ElementType::kComplex64 ||
                 type == wire::ElementType::kComplex32
             ? 2
             : 1;
}

}  // namespace nanwatch
