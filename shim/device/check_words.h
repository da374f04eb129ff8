// SPDX-License-Identifier: Apache-2.0
// Tests for non-finite parts on 32-bit words, several parts at a time where they are narrower.
//
// Two forms cover every format of float_bits.h; both leave a bit set at the top of each bad part,
// so that a running OR answers for any number of words. Neither lets a carry leave its part.
//
//   kAdd    an exponent of ones alone is bad. Adding the exponent's lowest bit to the masked
//           exponent carries into the sign's place, for it alone:
//           float16   word & 0x7c00   0x7c00 + 0x0400 = 0x8000   0x7bff & 0x7c00 = 0x7800 -> 0x7c00
//           e4m3fn has its NaN where every bit but the sign is set: mask 0x7f, and 1 is added.
//   kEqual  one word alone is bad (e4m3fnuz, e5m2fnuz: 0x80; e8m0fnu: 0xff). Flipped by it, it is
//           the byte 0, the only one for which neither (byte & 0x7f) + 0x7f nor the byte itself has
//           the top bit.
//
// A float64 is two words; its exponent lies in the odd one, and the even one is masked to nothing.
// The masks are chosen once for each tensor, so that one loop does for all types of a form.
#pragma once

#include <cstdint>

#include "shim/check/float_bits.h"

// A loop that is to stay one: the driver compiles the kernel when a job starts, and unrolled loops
// are most of what it would read.
#ifdef __CUDACC__
#define NANWATCH_NO_UNROLL _Pragma("clang loop unroll(disable)")
// One over an array that is to stay in registers.
#define NANWATCH_UNROLL _Pragma("clang loop unroll(full)")
#else
#define NANWATCH_NO_UNROLL
#define NANWATCH_UNROLL
#endif

namespace nanwatch::device {

struct WordTest {
  enum Form : uint32_t { kAdd, kEqual };
  Form form;
  uint32_t mask_even, add_even;  // kAdd, for the first and third word of 16 bytes
  uint32_t mask_odd, add_odd;    // kAdd, for the others, and for a part in a word of its own
  uint32_t flip;                 // kEqual
  uint32_t tops;                 // the places where a bad part leaves its bit
};

// `part` once for each part that a word holds; of a part of 8 bytes the upper half.
template <class Word>
NANWATCH_BITS constexpr uint32_t Spread(Word part) noexcept {
  if constexpr (sizeof(Word) == 8) {
    return static_cast<uint32_t>(part >> 32);
  } else {
    uint32_t word = part;
    for (unsigned bits = 8 * sizeof(Word); bits < 32; bits *= 2) word |= word << bits;
    return word;
  }
}

template <class Format>
NANWATCH_BITS constexpr WordTest TestOf() noexcept {
  using Word = typename Format::Word;
  WordTest test = {};
  test.tops = Spread(static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1)));
  // The form is in the format's own test: only the kinds that flip, or have no sign, have one bad
  // word.
  if constexpr (Format::kFlip != 0 || !Format::kHasSign) {
    test.form = WordTest::kEqual;
    test.flip = Spread(Format::kFlip != 0 ? Format::kSign : Format::kOnes);
  } else {
    const Word exponent = Format::kHasInf ? Format::kInfinity : Format::kMagnitude;
    test.mask_odd = Spread(exponent);
    test.add_odd = Spread(static_cast<Word>(exponent & (~exponent + 1)));
    if constexpr (sizeof(Word) < 8) {
      test.mask_even = test.mask_odd;
      test.add_even = test.add_odd;
    }
  }
  return test;
}

// Has bits in `test.tops` for a bad part. A narrow part may stand in a word of its own above zeros:
// zero is finite in every format.
template <WordTest::Form kForm>
NANWATCH_BITS constexpr uint32_t BadInOddWord(const WordTest& test, uint32_t word) noexcept {
  if constexpr (kForm == WordTest::kAdd) return (word & test.mask_odd) + test.add_odd;
  const uint32_t flipped = word ^ test.flip;
  return ~(((flipped & 0x7f7f7f7f) + 0x7f7f7f7f) | flipped);
}
template <WordTest::Form kForm>
NANWATCH_BITS constexpr uint32_t BadInEvenWord(const WordTest& test, uint32_t word) noexcept {
  if constexpr (kForm == WordTest::kAdd) return (word & test.mask_even) + test.add_even;
  return BadInOddWord<kForm>(test, word);
}

// Calls `visit` with the format of `type`'s parts as a value of type FormatOf<...>; does nothing
// for kNone and for what is no type.
template <class Visit>
NANWATCH_BITS constexpr void WithFormat(wire::ElementType type, Visit visit) noexcept {
  using enum wire::ElementType;
  switch (type) {
    case kFloat64:
    case kComplex128:
      return visit(FormatOf<kFloat64>{});
    case kFloat32:
    case kComplex64:
      return visit(FormatOf<kFloat32>{});
    case kFloat16:
    case kComplex32:
      return visit(FormatOf<kFloat16>{});
    case kBFloat16:
      return visit(FormatOf<kBFloat16>{});
    case kFloat8E5M2:
      return visit(FormatOf<kFloat8E5M2>{});
    case kFloat8E4M3Fn:
      return visit(FormatOf<kFloat8E4M3Fn>{});
    case kFloat8E5M2Fnuz:
      return visit(FormatOf<kFloat8E5M2Fnuz>{});
    case kFloat8E4M3Fnuz:
      return visit(FormatOf<kFloat8E4M3Fnuz>{});
    case kFloat8E8M0Fnu:
      return visit(FormatOf<kFloat8E8M0Fnu>{});
    default:
      return;
  }
}

}  // namespace nanwatch::device
