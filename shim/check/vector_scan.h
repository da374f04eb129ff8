// SPDX-License-Identifier: Apache-2.0
// The fast scan for a vector unit, given as a small struct of operations (scan_avx2.cc,
// scan_avx512.cc). Only for those files; see kernels.h for why nothing here has linkage.
//
// A running maximum over transformed words (float_bits.h) has two properties that keep this short:
// looking at a word twice changes nothing, so the last vector of a run may overlap the one before
// it and there is no loop over left-over elements; and a zero word is finite in every format, so a
// part-filled vector is padded with zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/check/float_bits.h"

namespace nanwatch {
namespace {

// Constants of a format as the vector unit sees them. Vector units compare unsigned 8, 16 and 32
// bits well; 64 bits they do not, or slowly. Whether a float64 is finite stands in its upper half
// alone, so the mask clears the lower half and the comparison is one of 32 bits.
template <class Format>
struct LaneTest {
  static constexpr bool kHalves = sizeof(typename Format::Word) == 8;
  static constexpr int kLaneBytes = kHalves ? 4 : int{sizeof(typename Format::Word)};
  static constexpr uint64_t kMask =
      kHalves ? (uint64_t{Format::kMask} >> 32) << 32 : uint64_t{Format::kMask};
  static constexpr uint64_t kFlip = uint64_t{Format::kFlip};
  static constexpr uint64_t kLimit =
      kHalves ? uint64_t{Format::kLimit} >> 32 : uint64_t{Format::kLimit};
  static constexpr int kMaskBytes = int{sizeof(typename Format::Word)};
};

// `value` in each lane of `kBytes` of a word.
template <int kBytes>
constexpr uint64_t Repeated(uint64_t value) {
  uint64_t word = 0;
  for (int at = 0; at < 8; at += kBytes) word |= value << 8 * at;
  return word;
}

template <class Unit, class Format, int kParts>
struct VectorScan {
  using Vector = typename Unit::Vector;
  using Test = LaneTest<Format>;
  static constexpr size_t kStep = sizeof(Vector);
  static constexpr size_t kBlockBytes = 4096;

  [[gnu::hot]] static Magnitude Run(const void* data, size_t count) {
    const char* at = static_cast<const char*>(data);
    const size_t bytes = count * kParts * sizeof(typename Format::Word);
    if (bytes < kStep) [[unlikely]]
      return bytes == 0 ? Magnitude{0, Magnitude::Kind::kNone}
                        : Tell(Look(Unit::LoadPart(at, bytes)));
    const char* last = at + bytes - kStep;
    if (bytes > kBlockBytes) [[unlikely]]
      return RunBlocks(at, last);
    return RunRest(at, last, Look(last));
  }

  // ---- for a scan that takes a part of its run by bits (arithmetic_scan.h)

  static Vector Look(const char* at) { return Look(Unit::Load(at)); }
  template <size_t kBytes>
  static Vector LookAll(const char* at) {
    static_assert(kBytes % (2 * kStep) == 0);
    Vector a{}, b{};
#pragma GCC unroll 8
    for (const char* end = at + kBytes; at != end; at += 2 * kStep) {
      a = Max(Look(at), a);
      b = Max(Look(at + kStep), b);
    }
    return Max(a, b);
  }
  [[gnu::always_inline]] static inline Vector Max(Vector a, Vector b) {
    return Unit::template Max<Test::kLaneBytes>(a, b);
  }
  // Where bits are flipped, the largest word is not the largest magnitude's.
  [[gnu::always_inline]] static inline Magnitude Tell(Vector seen) {
    const uint64_t largest = Unit::template Largest<Test::kLaneBytes>(seen);
    if (largest > Test::kLimit) return {0, Magnitude::Kind::kNonFinite};
    if constexpr (Format::kFlip != 0) return {0, Magnitude::Kind::kNone};
    return {Test::kHalves ? largest << 32 : largest, Magnitude::Kind::kLargest};
  }
  [[gnu::always_inline]] static inline bool IsBad(Vector seen) {
    return Unit::template AnyAbove<Test::kLaneBytes>(
        seen, Unit::Fill(Repeated<Test::kLaneBytes>(Test::kLimit)));
  }

 private:
  // Out of line, so that the short path does not begin by filling registers for it.
  [[gnu::noinline]] static Magnitude RunBlocks(const char* at, const char* last) {
    Vector seen = Look(last);
    for (; static_cast<size_t>(last - at) >= kBlockBytes; at += kBlockBytes) {
      seen = Max(seen, Block(at));
      if (IsBad(seen)) return {0, Magnitude::Kind::kNonFinite};
    }
    return RunRest(at, last, seen);
  }

  // From `at` to the vector at `last`, which is among what was seen already.
  [[gnu::always_inline]] static inline Magnitude RunRest(const char* at, const char* last,
                                                         Vector seen) {
    for (; static_cast<size_t>(last - at) >= 4 * kStep; at += 4 * kStep) {
      const Vector two = Max(Look(at), Look(at + kStep));
      const Vector more = Max(Look(at + 2 * kStep), Look(at + 3 * kStep));
      seen = Max(seen, Max(two, more));
    }
    for (; at < last; at += kStep) seen = Max(seen, Look(at));
    return Tell(seen);
  }

  // Four chains, because a maximum has a latency, each taking two vectors a turn; a look at the
  // result now and then, to stop early. Zero, with which they begin, is finite.
  [[gnu::always_inline]] static inline Vector Block(const char* at) {
    static_assert(kBlockBytes % (8 * kStep) == 0);
    Vector a{}, b{}, c{}, d{};
    // Otherwise GCC unrolls the whole block for each type, too much for the instruction cache.
#pragma GCC unroll 1
    for (const char* end = at + kBlockBytes; at != end; at += 8 * kStep) {
      a = Max(Look(at), a);
      b = Max(Look(at + kStep), b);
      c = Max(Look(at + 2 * kStep), c);
      d = Max(Look(at + 3 * kStep), d);
      a = Max(Look(at + 4 * kStep), a);
      b = Max(Look(at + 5 * kStep), b);
      c = Max(Look(at + 6 * kStep), c);
      d = Max(Look(at + 7 * kStep), d);
    }
    return Max(Max(a, b), Max(c, d));
  }

  [[gnu::always_inline]] static inline Vector Look(Vector words) {
    if constexpr (Format::kMask != Format::kOnes) {
      words = Unit::And(words, Unit::Fill(Repeated<Test::kMaskBytes>(Test::kMask)));
    }
    if constexpr (Format::kFlip != 0) {
      words = Unit::Xor(words, Unit::Fill(Repeated<Test::kMaskBytes>(Test::kFlip)));
    }
    return words;
  }
};

}  // namespace
}  // namespace nanwatch
