// SPDX-License-Identifier: Apache-2.0
// What exactly is in a tensor that was found bad, or in an input of an op that wrote one: the sums
// of one thread, how they are merged, and what the host is told of them.
//
// Doubles are added and compared here, which no GPU does with subnormals flushed; whether a part is
// finite is asked of its bits alone.
#pragma once

#include <cstdint>

#include "shim/device/check_launch.h"
#include "shim/device/check_walk.h"

namespace nanwatch::device {

// Elements that a thread has loaded before it looks at the first of them: hides their latency.
inline constexpr uint32_t kCountLoads = 2;

// The sum of the parts times this cannot overflow.
inline constexpr double kSumScale = 0x1p-64;

struct Tally {
  uint64_t nan, pos_inf, neg_inf;  // elements
  uint64_t first_bad;              // row-major index, or ~0
  uint64_t finite_parts;
  double min, max;  // +Inf and -Inf where there is no finite part
  double sum, sum_scaled;
};

NANWATCH_BITS constexpr Tally EmptyTally() noexcept {
  constexpr double kInfinity = __builtin_bit_cast(double, uint64_t{0x7ff} << 52);
  return {0, 0, 0, ~uint64_t{0}, 0, kInfinity, -kInfinity, 0, 0};
}

NANWATCH_BITS constexpr void Merge(const Tally& from, Tally& into) noexcept {
  into.nan += from.nan;
  into.pos_inf += from.pos_inf;
  into.neg_inf += from.neg_inf;
  if (from.first_bad < into.first_bad) into.first_bad = from.first_bad;
  into.finite_parts += from.finite_parts;
  if (from.min < into.min) into.min = from.min;
  if (from.max > into.max) into.max = from.max;
  into.sum += from.sum;
  into.sum_scaled += from.sum_scaled;
}

// What one part is, whatever its format.
struct DecodedPart {
  uint32_t kinds;
  uint64_t bits;  // of its value as a double; 0 if it is not finite
};

NANWATCH_BITS constexpr DecodedPart DecodePart(wire::ElementType type, uint64_t word) noexcept {
  DecodedPart decoded = {};
  WithFormat(type, [&](auto format) {
    using Format = decltype(format);
    const auto part = static_cast<typename Format::Word>(word);
    decoded.kinds = Format::Kinds(part);
    decoded.bits = __builtin_bit_cast(uint64_t, Format::ToDouble(part));
  });
  return decoded;
}

template <class Memory>
NANWATCH_BITS uint64_t LoadPartOf(uint32_t bytes, uint64_t address) noexcept {
  switch (bytes) {
    case 1:
      return Memory::template LoadPart<uint8_t>(address);
    case 2:
      return Memory::template LoadPart<uint16_t>(address);
    case 4:
      return Memory::template LoadPart<uint32_t>(address);
    default:
      return Memory::template LoadPart<uint64_t>(address);
  }
}

// What one thread has seen, in as few registers as will do: a thread gets one in 512 elements, so
// that 32 bits count those of more memory than a GPU has (2^41 elements). Minimum and maximum are
// kept as integers that order doubles (FloatFormat::ToKey).
struct ThreadTally {
  uint32_t nan, pos_inf, neg_inf;
  uint32_t finite_parts;
  uint64_t first_bad;
  int64_t key_min, key_max;
  double sum, sum_scaled;
};

NANWATCH_BITS constexpr void AddFinitePart(uint64_t bits, ThreadTally& tally) noexcept {
  const int64_t key = FormatOf<wire::ElementType::kFloat64>::ToKey(bits);
  if (key < tally.key_min) tally.key_min = key;
  if (key > tally.key_max) tally.key_max = key;
  const double value = __builtin_bit_cast(double, bits);
  ++tally.finite_parts;
  tally.sum += value;
  tally.sum_scaled += value * kSumScale;
}

// Adds element number `unit` of the walk, whose parts are `first` and `second` (0 if it has one).
NANWATCH_BITS constexpr void AddElement(const Walk& walk, uint64_t unit, uint64_t first,
                                        uint64_t second, ThreadTally& tally) noexcept {
  const auto type = static_cast<wire::ElementType>(walk.type);
  DecodedPart part = DecodePart(type, first);
  DecodedPart other = {};
  if (walk.parts == 2) other = DecodePart(type, second);
  const uint32_t kinds = part.kinds | other.kinds;
  if (kinds != 0) {
    tally.nan += (kinds & wire::kHasNan) != 0;
    tally.pos_inf += (kinds & wire::kHasPosInf) != 0;
    tally.neg_inf += (kinds & wire::kHasNegInf) != 0;
    const uint64_t row = RowOf(walk, unit);
    if (row < tally.first_bad) tally.first_bad = row;
    return;
  }
  AddFinitePart(part.bits, tally);
  if (walk.parts == 2) AddFinitePart(other.bits, tally);
}

// The elements of the walk that fall to one of a block's threads.
template <class Memory>
NANWATCH_BITS Tally CountElements(const Walk& walk, uint32_t thread) noexcept {
  ThreadTally tally = {0, 0, 0, 0, ~uint64_t{0}, INT64_MAX, INT64_MIN, 0, 0};
  NANWATCH_NO_UNROLL
  for (uint64_t unit = thread; unit < walk.units; unit = UnitAfter(unit, kCountLoads)) {
    Memory::ForgetBlock();
    uint64_t units[kCountLoads], addresses[kCountLoads];
    uint64_t first[kCountLoads], second[kCountLoads] = {};
    for (uint32_t i = 0; i < kCountLoads; ++i) {
      const uint64_t at = UnitAfter(unit, i);
      units[i] = at < walk.units ? at : unit;
    }
    FindUnits<Memory>(walk, units, addresses);
    for (uint32_t i = 0; i < kCountLoads; ++i) {
      first[i] = LoadPartOf<Memory>(walk.part_bytes, addresses[i]);
    }
    if (walk.parts == 2) {
      for (uint32_t i = 0; i < kCountLoads; ++i) {
        second[i] = LoadPartOf<Memory>(walk.part_bytes, addresses[i] + walk.part_bytes);
      }
    }
    // The words move up, so that the loop need not be unrolled to keep them in registers.
    NANWATCH_NO_UNROLL
    for (uint32_t i = 0; i < kCountLoads; ++i) {
      Memory::ForgetBlock();
      const uint64_t at = UnitAfter(unit, i);
      if (at < walk.units) AddElement(walk, at, first[0], second[0], tally);
      for (uint32_t next = 1; next < kCountLoads; ++next) {
        first[next - 1] = first[next];
        second[next - 1] = second[next];
      }
    }
  }
  using Double = FormatOf<wire::ElementType::kFloat64>;
  Tally found = EmptyTally();
  found.nan = tally.nan;
  found.pos_inf = tally.pos_inf;
  found.neg_inf = tally.neg_inf;
  found.first_bad = tally.first_bad;
  found.finite_parts = tally.finite_parts;
  if (tally.finite_parts != 0) {
    found.min = Double::KeyToDouble(tally.key_min);
    found.max = Double::KeyToDouble(tally.key_max);
  }
  found.sum = tally.sum;
  found.sum_scaled = tally.sum_scaled;
  return found;
}

// The plain sum is the more exact one; where it has overflowed (it then stays so) the scaled one
// has not. Rounding may carry the mean of nearly equal numbers a little beyond them.
NANWATCH_BITS constexpr double MeanOf(const Tally& tally) noexcept {
  if (tally.finite_parts == 0) return 0;
  const auto parts = static_cast<double>(tally.finite_parts);
  const bool overflowed =
      FormatOf<wire::ElementType::kFloat64>::IsNonFinite(__builtin_bit_cast(uint64_t, tally.sum));
  const double mean = overflowed ? tally.sum_scaled / parts / kSumScale : tally.sum / parts;
  return mean < tally.min ? tally.min : mean > tally.max ? tally.max : mean;
}

NANWATCH_BITS constexpr TensorCounts CountsOf(const Tally& tally, uint64_t repeats) noexcept {
  return {.nan = tally.nan * repeats,
          .pos_inf = tally.pos_inf * repeats,
          .neg_inf = tally.neg_inf * repeats,
          .first_bad = tally.first_bad,
          .finite_min = tally.min,
          .finite_max = tally.max,
          .finite_mean = MeanOf(tally)};
}

NANWATCH_BITS constexpr uint8_t KindsOf(const TensorCounts& counts) noexcept {
  return static_cast<uint8_t>((counts.nan != 0 ? wire::kHasNan : 0) |
                              (counts.pos_inf != 0 ? wire::kHasPosInf : 0) |
                              (counts.neg_inf != 0 ? wire::kHasNegInf : 0));
}

}  // namespace nanwatch::device
