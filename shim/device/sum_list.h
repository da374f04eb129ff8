// SPDX-License-Identifier: Apache-2.0
// The kernel that checks a list and sums it besides (list_launch.h), as functions for a GPU and for
// a CPU, as in check_kernel.h. It is that of check_list.h but for this:
//
//   scan    each thread adds up the squares that it meets, and a block knows which entries are not
//           all zero
//   add     the sums of the block's threads, as a tree of eights
//   judge   the block's sum and bits go to the scratch before the block counts itself as done; the
//           last one takes them, which leaves the scratch zero, and tells them before all else
//
// Accuracy. A double holds the square of every float32 and bfloat16; a float does not. But turning
// each part into a double is dear: an H200 does 16 of those conversions a clock and multiprocessor,
// and its memory brings 4.8 TB/s / 132 / 1.98 GHz = 18.4 bytes, 9.2 parts of bfloat16: 57 % of
// them. An L40S (sm_89, 864 GB/s, 142, 2.52 GHz) does 2 and gets 1.2 parts, each of which takes a
// conversion, a product and a sum of that rate: with them, memory would wait.
//
// So the squares of 16 bytes are added as floats (three roundings in a row at most: wrong by less
// than 3 * 2^-24), and that sum alone becomes a double: for each 16 bytes one conversion and one
// addition, which is 1.2 of 16 and of 64 on the H200 and 0.15 of 2 on the L40S. Where it is not in
// [kFloatSumMin, infinity) though not all 16 bytes are zero, the thread reads its turn again and
// adds doubles. Below that bound what is lost to underflow would show, from it on it is less than
// 8 * 2^-150 / 2^-120 = 2^-27 of the sum. A bfloat16 of 1e-18 or more never comes to that, and a
// float16 never at all. float64 is multiplied and added as it is, 4 operations for 16 bytes.
//
// What it costs, in instructions of sm_90 as ptxas 12.8 makes them, for 16 bytes with addresses and
// tests: bfloat16 58, float16 53, float32 42, float64 32; nanwatch_check_list has 19. An H200's
// multiprocessor issues 128 a clock (4 warps of 32) and gets 1.15 times 16 bytes: 52 % of them for
// bfloat16. So memory should stay what is waited for. **Not measured: no GPU has run this.**
#pragma once

#include <cstdint>

#include "shim/device/check_list.h"
#include "shim/device/sum_vector.h"

namespace nanwatch::device {

// Vectors that a thread loads before it looks at one: half of kScanLoads, for the sums take
// registers and text too. That is 64 KiB in flight on a multiprocessor where 29 are needed
// (kBlocksPerMultiprocessor).
inline constexpr uint32_t kSumLoads = 4;
static_assert(kTileUnits % (kThreadsPerBlock * kSumLoads) == 0);

// Which bits of a word say that it is not zero.
struct ZeroTest {
  uint32_t mask_even;  // of the first and third word of 16 bytes
  uint32_t mask_odd;   // of the others, and of a part in a word of its own
  uint32_t always;     // not 0: the type has no zero
};

// What the threads of a block share. Everything is the block's own.
struct SumState {
  ListState list;
  ZeroTest zero_tests[wire::kElementTypeCount];
  uint32_t nonzero[kListWords];
  double squares[kThreadsPerBlock];  // of each thread, then sums of them; the first: of all
};

template <class Format>
NANWATCH_BITS constexpr ZeroTest ZeroTestOf() noexcept {
  using Word = typename Format::Word;
  if constexpr (!Format::kHasSign) return {0, 0, 1};
  // Where the place of negative zero is a NaN's, the sign counts too.
  const Word bits = Format::kFlip != 0 ? Format::kOnes : Format::kMagnitude;
  return {sizeof(Word) == 8 ? ~uint32_t{0} : Spread(bits), Spread(bits), 0};
}

// A thread's turn in a tile: units `first`, `first` + 512 ... of `units`. What is behind the end is
// the last one again, and not added.
template <class Memory>
NANWATCH_BITS Vector LoadOfTurn(uint64_t base, uint32_t units, uint32_t unit) noexcept {
  return Memory::LoadVector(base + uint64_t{unit < units ? unit : units - 1} * kVectorBytes);
}

template <class Memory, wire::ElementType kType>
NANWATCH_BITS double SquaresOfTurn(const Vector (&vectors)[kSumLoads], uint64_t base,
                                   uint32_t units, uint32_t first) noexcept {
  using Parts = FloatParts<kType, Memory>;
  double squares = 0;
  bool is_rare = false;
  NANWATCH_UNROLL
  for (uint32_t i = 0; i < kSumLoads; ++i) {
    const Vector& vector = vectors[i];
    const float sum = SquaresInFloat<Parts>(vector);
    if constexpr (kType != wire::ElementType::kFloat16) {
      constexpr uint32_t kMagnitudes = ZeroTestOf<FormatOf<kType>>().mask_odd;
      const uint32_t any = vector.word[0] | vector.word[1] | vector.word[2] | vector.word[3];
      const bool is_usual = sum >= kFloatSumMin && sum < __builtin_inff();
      is_rare |= !is_usual && (any & kMagnitudes) != 0;
    }
    squares += first + i * kThreadsPerBlock < units ? static_cast<double>(sum) : 0;
  }
  if (!is_rare) return squares;
  squares = 0;
  NANWATCH_NO_UNROLL
  for (uint32_t i = 0; i < kSumLoads; ++i) {
    const uint32_t unit = first + i * kThreadsPerBlock;
    if (unit >= units) break;
    squares += SquaresInDouble<Parts>(Memory::LoadVector(base + uint64_t{unit} * kVectorBytes));
  }
  return squares;
}

NANWATCH_BITS double DoublesOfTurn(const Vector (&vectors)[kSumLoads], uint32_t units,
                                   uint32_t first) noexcept {
  double squares = 0;
  NANWATCH_UNROLL
  for (uint32_t i = 0; i < kSumLoads; ++i) {
    const double even = DoubleAt(vectors[i], 0), odd = DoubleAt(vectors[i], 1);
    const double sum = even * even + odd * odd;
    squares += first + i * kThreadsPerBlock < units ? sum : 0;
  }
  return squares;
}

// A part's value, NaN and infinities as they are; 0 for a type that is not summed.
template <class Memory>
NANWATCH_BITS double SummedPart(wire::ElementType type, uint64_t word) noexcept {
  using enum wire::ElementType;
  switch (type) {
    case kFloat64:
    case kComplex128:
      return __builtin_bit_cast(double, word);
    case kFloat32:
    case kComplex64:
      return FloatParts<kFloat32, Memory>::At(static_cast<uint32_t>(word), 0);
    case kFloat16:
    case kComplex32:
      return FloatParts<kFloat16, Memory>::At(static_cast<uint32_t>(word), 0);
    case kBFloat16:
      return FloatParts<kBFloat16, Memory>::At(static_cast<uint32_t>(word), 0);
    default:
      return 0;
  }
}

// Where a tile lies: units [first, last) from `middle` on. BadInTile says the same to itself:
// shared, this would have changed the text of nanwatch_check_list.
struct TileSpan {
  uint64_t begin, middle, end;
  uint64_t units;  // of all tiles
  uint64_t first, last;
};

NANWATCH_BITS constexpr TileSpan SpanOf(const ListEntry& entry, uint32_t tile) noexcept {
  TileSpan span = {};
  span.begin = entry.data;
  span.end = span.begin + BytesOf(entry);
  span.middle = (span.begin + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
  if (span.middle > span.end) span.middle = span.end;
  span.units = (span.end - span.middle) / kVectorBytes;
  span.first = tile * kTileUnits;
  span.last = span.first + kTileUnits < span.units ? span.first + kTileUnits : span.units;
  return span;
}

// The part before or after the middle that falls to one of kEdgeSlots slots; 0: none.
NANWATCH_BITS constexpr uint64_t EdgePart(const TileSpan& span, uint32_t part_bytes,
                                          uint32_t slot) noexcept {
  const bool is_head = slot < kEdgeSlots / 2;
  const uint64_t end = is_head ? span.middle : span.end;
  const uint64_t address = (is_head ? span.begin : span.middle + span.units * kVectorBytes) +
                           uint64_t{slot % (kEdgeSlots / 2)} * part_bytes;
  return address < end ? address : 0;
}

// What one thread has seen of one tile.
struct TileSums {
  uint32_t bad;
  uint32_t nonzero;
  double squares;
};

template <class Memory>
NANWATCH_BITS void SumTurn(const SumState& block, uint8_t type, uint64_t base, uint32_t units,
                           uint32_t first, TileSums& seen) noexcept {
  using enum wire::ElementType;
  Vector vectors[kSumLoads];
  NANWATCH_UNROLL
  for (uint32_t i = 0; i < kSumLoads; ++i) {
    vectors[i] = LoadOfTurn<Memory>(base, units, first + i * kThreadsPerBlock);
  }
  const WordTest test = block.list.plans[type].test;
  if (test.form == WordTest::kAdd) {
    NANWATCH_UNROLL
    for (const Vector& vector : vectors) seen.bad |= BadVector<WordTest::kAdd>(test, vector);
  } else {
    NANWATCH_UNROLL
    for (const Vector& vector : vectors) seen.bad |= BadVector<WordTest::kEqual>(test, vector);
  }
  uint32_t even = 0, odd = 0;
  NANWATCH_UNROLL
  for (const Vector& vector : vectors) {
    even |= vector.word[0] | vector.word[2];
    odd |= vector.word[1] | vector.word[3];
  }
  const ZeroTest& zero = block.zero_tests[type];
  seen.nonzero |= (even & zero.mask_even) | (odd & zero.mask_odd) | zero.always;
  switch (static_cast<wire::ElementType>(type)) {
    case kFloat64:
    case kComplex128:
      seen.squares += DoublesOfTurn(vectors, units, first);
      return;
    case kFloat32:
    case kComplex64:
      seen.squares += SquaresOfTurn<Memory, kFloat32>(vectors, base, units, first);
      return;
    case kFloat16:
    case kComplex32:
      seen.squares += SquaresOfTurn<Memory, kFloat16>(vectors, base, units, first);
      return;
    case kBFloat16:
      seen.squares += SquaresOfTurn<Memory, kBFloat16>(vectors, base, units, first);
      return;
    default:
      return;
  }
}

// One part before or after the aligned middle.
template <class Memory>
NANWATCH_BITS void SumPart(const SumState& block, uint8_t type, uint64_t address,
                           TileSums& seen) noexcept {
  const PartPlan& plan = block.list.plans[type];
  const ZeroTest& zero = block.zero_tests[type];
  const uint64_t part = LoadPartOf<Memory>(plan.part_bytes, address);
  const bool is_wide = plan.part_bytes == 8;
  const auto even = is_wide ? static_cast<uint32_t>(part) : 0;
  const auto odd = static_cast<uint32_t>(is_wide ? part >> 32 : part);
  seen.bad |= plan.test.form == WordTest::kAdd ? BadInOddWord<WordTest::kAdd>(plan.test, odd)
                                               : BadInOddWord<WordTest::kEqual>(plan.test, odd);
  seen.nonzero |= (even & zero.mask_even) | (odd & zero.mask_odd) | zero.always;
  const double value = SummedPart<Memory>(static_cast<wire::ElementType>(type), part);
  seen.squares += value * value;
}

// As BadInTile.
template <class Memory>
NANWATCH_BITS TileSums SumTile(const SumState& block, uint32_t index, uint32_t tile,
                               uint32_t thread) noexcept {
  const ListEntry& entry = block.list.entries[index];
  const TileSpan span = SpanOf(entry, tile);
  TileSums seen = {0, 0, 0};
  const uint64_t base = span.middle + span.first * kVectorBytes;
  const auto units = static_cast<uint32_t>(span.last - span.first);
  NANWATCH_NO_UNROLL
  for (uint32_t unit = thread; unit < units; unit += kThreadsPerBlock * kSumLoads) {
    Memory::ForgetBlock();
    SumTurn<Memory>(block, TypeOf(entry), base, units, unit, seen);
  }
  // From here on all is found anew: kept, it would take registers from the turns.
  Memory::ForgetBlock();
  const uint8_t type = TypeOf(entry);
  if (tile == 0 && thread < kEdgeSlots) {
    const uint64_t address = EdgePart(SpanOf(entry, 0), block.list.plans[type].part_bytes, thread);
    if (address != 0) SumPart<Memory>(block, type, address, seen);
  }
  seen.bad &= block.list.plans[type].test.tops;
  return seen;
}

// As ScanTiles, of the gate.
template <class Memory>
NANWATCH_BITS void SumTiles(SumState& block, Place place, uint32_t thread) noexcept {
  ListState& list = block.list;
  const uint32_t end = list.tiles_before[list.head.output_count];
  double squares = 0;
  uint32_t index = 0;
  NANWATCH_NO_UNROLL
  for (uint32_t tile = place.block; tile < end; tile += place.blocks) {
    NANWATCH_NO_UNROLL
    while (list.tiles_before[index + 1] <= tile) ++index;
    Memory::ForgetBlock();
    const TileSums seen = SumTile<Memory>(block, index, tile - list.tiles_before[index], thread);
    const uint32_t bit = 1u << index % 32;
    squares += seen.squares;
    if (seen.bad != 0) Memory::OrInBlock(&list.bad[index / 32], bit);
    // Nearly every thread comes here: whoever sees the bit leaves the others to their work.
    uint32_t* const nonzero = &block.nonzero[index / 32];
    if (seen.nonzero != 0 && (*static_cast<volatile const uint32_t*>(nonzero) & bit) == 0) {
      Memory::OrInBlock(nonzero, bit);
    }
  }
  block.squares[thread] = squares;
}

// What JudgeList says besides: called by thread 0 of a block.
template <class Memory>
struct SumsOfBlock {
  SumState& block;

  // To be taken in one piece by the block that is last.
  NANWATCH_BITS void AddToScratch() const noexcept {
    const uint64_t scratch = block.list.head.scratch;
    const uint64_t nonzero = scratch + __builtin_offsetof(LaunchScratch, nonzero);
    if (block.squares[0] != 0) {
      Memory::AddDoubleInDevice(scratch + __builtin_offsetof(LaunchScratch, squares),
                                block.squares[0]);
    }
    NANWATCH_NO_UNROLL
    for (uint32_t word = 0; word < kListWords; ++word) {
      if (block.nonzero[word] != 0) Memory::OrInDevice(nonzero + 4 * word, block.nonzero[word]);
    }
  }
  NANWATCH_BITS void TakeFromScratch() const noexcept {
    const uint64_t scratch = block.list.head.scratch;
    const uint64_t nonzero = scratch + __builtin_offsetof(LaunchScratch, nonzero);
    block.squares[0] =
        Memory::TakeDoubleInDevice(scratch + __builtin_offsetof(LaunchScratch, squares));
    NANWATCH_NO_UNROLL
    for (uint32_t word = 0; word < kListWords; ++word) {
      block.nonzero[word] = Memory::TakeInDevice(nonzero + 4 * word);
    }
  }
  NANWATCH_BITS void Tell() const noexcept {
    const LaunchHead& head = block.list.head;
    if (head.output_count == 0) return;  // it looks at nothing, and may have no slot
    const ListEntry& entry = block.list.entries[0];
    const auto type = static_cast<wire::ElementType>(TypeOf(entry));
    const bool has_first = TilesOf(entry) != 0;
    auto* const result = reinterpret_cast<ListResult*>(head.result);
    result->sums.squares = block.squares[0];
    result->sums.first =
        has_first ? SummedPart<Memory>(type, LoadPartOf<Memory>(PartBytesOf(type), entry.data)) : 0;
    NANWATCH_NO_UNROLL
    for (uint32_t word = 0; word < kListWords; ++word) {
      result->sums.nonzero[word] = block.nonzero[word];
    }
    Memory::PublishToHost(reinterpret_cast<uint64_t>(&result->sums_ticket), head.ticket);
  }
};

NANWATCH_BITS void PlanSums(SumState& block, uint32_t thread) noexcept {
  if (thread < kListWords) block.nonzero[thread] = 0;
  if (thread >= wire::kElementTypeCount) return;
  block.zero_tests[thread] = {0, 0, 0};
  WithFormat(static_cast<wire::ElementType>(thread),
             [&](auto format) { block.zero_tests[thread] = ZeroTestOf<decltype(format)>(); });
}

// All that one block does once the launch is copied.
template <class Memory, class Team>
NANWATCH_BITS void SumListBlock(SumState& block, Place place, Team& team) noexcept {
  constexpr uint32_t kTreeWidth = 8;
  static_assert(kThreadsPerBlock == kTreeWidth * kTreeWidth * kTreeWidth);
  team.Each([&](uint32_t thread, Tally&) { PlanSums(block, thread); });
  PlanList(block.list, team);
  team.Each([&](uint32_t thread, Tally&) { SumTiles<Memory>(block, place, thread); });
  NANWATCH_NO_UNROLL
  for (uint32_t sums = kThreadsPerBlock / kTreeWidth; sums != 0; sums /= kTreeWidth) {
    team.Each([&](uint32_t thread, Tally&) {
      if (thread >= sums) return;
      double squares = 0;
      for (uint32_t i = 0; i < kTreeWidth; ++i) squares += block.squares[thread + i * sums];
      block.squares[thread] = squares;
    });
  }
  team.Each([&](uint32_t thread, Tally&) {
    if (thread == 0) JudgeList<Memory>(block.list, place, SumsOfBlock<Memory>{block});
  });
  if (block.list.answers != 0) AnswerList<Memory>(block.list, team);
}

}  // namespace nanwatch::device
