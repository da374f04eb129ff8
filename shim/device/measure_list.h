// SPDX-License-Identifier: Apache-2.0
// The kernel that measures the tensors of a list one by one (measure_launch.h), as functions for a
// GPU and for a CPU, as in check_kernel.h. Tiles are those of check_list.h:
//
//   every block          plan     how many tiles lie before each entry
//                        measure  its tiles of one entry after the other: each thread its share,
//                                 then the block's as a tree of eights, added to the scratch
//                        judge    add 1 to blocks_done
//   the last one to add  takes the totals, which leaves the scratch zero, and tells them
//
// Unlike sum_list.h it adds doubles only: the deviation of what is nearly all the same is the small
// difference of two sums, of which floats would leave nothing. A part takes a conversion, a product
// and two sums of doubles. By the figures of sum_list.h an H200 then has 57 % of its conversions
// busy for bfloat16, and an L40S does 2 such operations a clock where memory brings parts for 4.8,
// so that memory waits: 2.4 times as long as it takes to read. It is launched in one step of some
// dozens. **Not measured: no GPU has run this.**
#pragma once

#include <cstdint>

#include "shim/device/check_list.h"
#include "shim/device/measure_launch.h"
#include "shim/device/sum_list.h"

namespace nanwatch::device {

// Vectors that a thread loads before it looks at one, as kSumLoads.
inline constexpr uint32_t kMeasureLoads = kSumLoads;

// What the threads of a block share. Everything is the block's own.
struct MeasureState {
  ListState list;
  // Of each thread, then totals of them; the first: of all. `largest` as the bits of a double,
  // which order magnitudes, infinity and NaN.
  double sum[kThreadsPerBlock];
  double squares[kThreadsPerBlock];
  uint64_t largest[kThreadsPerBlock];
  uint64_t zeros[kThreadsPerBlock];
};

// What one thread has seen of one entry.
struct Seen {
  double sum, squares;
  uint64_t largest;
  uint64_t zeros;
};

// `largest` is the magnitude's bits as a float.
struct FloatsSeen {
  double sum, squares;
  uint32_t largest;
  uint32_t zeros;
};

NANWATCH_BITS uint64_t LargerOf(uint64_t one, uint64_t other) noexcept {
  return one > other ? one : other;
}

NANWATCH_BITS void MeasureFloat(float value, FloatsSeen& seen) noexcept {
  const uint32_t magnitude = __builtin_bit_cast(uint32_t, value) & 0x7fffffff;
  seen.largest = magnitude > seen.largest ? magnitude : seen.largest;
  seen.zeros += magnitude == 0 ? 1 : 0;
  const double wide = value;
  seen.sum += wide;
  seen.squares += wide * wide;
}

NANWATCH_BITS void MeasureDouble(double value, Seen& seen) noexcept {
  const uint64_t magnitude = __builtin_bit_cast(uint64_t, value) & ~(uint64_t{1} << 63);
  seen.largest = LargerOf(magnitude, seen.largest);
  seen.zeros += magnitude == 0 ? 1 : 0;
  seen.sum += value;
  seen.squares += value * value;
}

NANWATCH_BITS uint64_t BitsAsDouble(uint32_t float_bits) noexcept {
  return __builtin_bit_cast(uint64_t, static_cast<double>(__builtin_bit_cast(float, float_bits)));
}

// A thread's turn in a tile: kMeasureLoads units from `first` on.
template <class Memory, wire::ElementType kType>
NANWATCH_BITS void MeasureTurn(const Vector (&vectors)[kMeasureLoads], uint32_t units,
                               uint32_t first, Seen& seen) noexcept {
  using Parts = FloatParts<kType, Memory>;
  FloatsSeen floats = {seen.sum, seen.squares, 0, 0};
  NANWATCH_UNROLL
  for (uint32_t i = 0; i < kMeasureLoads; ++i) {
    if (first + i * kThreadsPerBlock >= units) break;
    NANWATCH_UNROLL
    for (const uint32_t word : vectors[i].word) {
      NANWATCH_UNROLL
      for (uint32_t part = 0; part < Parts::kCount; ++part) {
        MeasureFloat(Parts::At(word, part), floats);
      }
    }
  }
  seen = {floats.sum, floats.squares, LargerOf(seen.largest, BitsAsDouble(floats.largest)),
          seen.zeros + floats.zeros};
}

NANWATCH_BITS void MeasureDoubles(const Vector (&vectors)[kMeasureLoads], uint32_t units,
                                  uint32_t first, Seen& seen) noexcept {
  NANWATCH_UNROLL
  for (uint32_t i = 0; i < kMeasureLoads; ++i) {
    if (first + i * kThreadsPerBlock >= units) break;
    MeasureDouble(DoubleAt(vectors[i], 0), seen);
    MeasureDouble(DoubleAt(vectors[i], 1), seen);
  }
}

template <class Memory>
NANWATCH_BITS void MeasureTile(const ListEntry& entry, uint32_t tile, uint32_t thread,
                               Seen& seen) noexcept {
  using enum wire::ElementType;
  const auto type = static_cast<wire::ElementType>(TypeOf(entry));
  const TileSpan span = SpanOf(entry, tile);
  const uint64_t base = span.middle + span.first * kVectorBytes;
  const auto units = static_cast<uint32_t>(span.last - span.first);
  NANWATCH_NO_UNROLL
  for (uint32_t unit = thread; unit < units; unit += kThreadsPerBlock * kMeasureLoads) {
    Vector vectors[kMeasureLoads];
    NANWATCH_UNROLL
    for (uint32_t i = 0; i < kMeasureLoads; ++i) {
      vectors[i] = LoadOfTurn<Memory>(base, units, unit + i * kThreadsPerBlock);
    }
    if (type == kFloat32) {
      MeasureTurn<Memory, kFloat32>(vectors, units, unit, seen);
    } else if (type == kBFloat16) {
      MeasureTurn<Memory, kBFloat16>(vectors, units, unit, seen);
    } else if (type == kFloat16) {
      MeasureTurn<Memory, kFloat16>(vectors, units, unit, seen);
    } else {
      MeasureDoubles(vectors, units, unit, seen);
    }
  }
  if (tile != 0 || thread >= kEdgeSlots) return;
  const uint64_t address = EdgePart(SpanOf(entry, 0), PartBytesOf(type), thread);
  if (address == 0) return;
  MeasureDouble(SummedPart<Memory>(type, LoadPartOf<Memory>(PartBytesOf(type), address)), seen);
}

// Of an entry the tiles `tile`, `tile` + `step` ... before `end`, all of them counted through the
// list.
template <class Memory>
NANWATCH_BITS void MeasureTiles(MeasureState& block, uint32_t index, uint32_t tile, uint32_t step,
                                uint32_t thread) noexcept {
  const ListEntry& entry = block.list.entries[index];
  Seen seen = {0, 0, 0, 0};
  if (IsMeasured(TypeOf(entry))) {
    const uint32_t before = block.list.tiles_before[index];
    const uint32_t end = block.list.tiles_before[index + 1];
    NANWATCH_NO_UNROLL
    for (; tile < end; tile += step) {
      Memory::ForgetBlock();
      MeasureTile<Memory>(entry, tile - before, thread, seen);
    }
  }
  block.sum[thread] = seen.sum;
  block.squares[thread] = seen.squares;
  block.largest[thread] = seen.largest;
  block.zeros[thread] = seen.zeros;
}

template <class Team>
NANWATCH_BITS void AddUpThreads(MeasureState& block, Team& team) noexcept {
  constexpr uint32_t kTreeWidth = 8;
  static_assert(kThreadsPerBlock == kTreeWidth * kTreeWidth * kTreeWidth);
  NANWATCH_NO_UNROLL
  for (uint32_t totals = kThreadsPerBlock / kTreeWidth; totals != 0; totals /= kTreeWidth) {
    team.Each([&](uint32_t thread, Tally&) {
      if (thread >= totals) return;
      Seen all = {0, 0, 0, 0};
      NANWATCH_NO_UNROLL
      for (uint32_t i = 0; i < kTreeWidth; ++i) {
        const uint32_t at = thread + i * totals;
        all.sum += block.sum[at];
        all.squares += block.squares[at];
        all.largest = LargerOf(all.largest, block.largest[at]);
        all.zeros += block.zeros[at];
      }
      block.sum[thread] = all.sum;
      block.squares[thread] = all.squares;
      block.largest[thread] = all.largest;
      block.zeros[thread] = all.zeros;
    });
  }
}

NANWATCH_BITS uint64_t TotalAt(const LaunchHead& head, uint32_t index) noexcept {
  return head.scratch + __builtin_offsetof(MeasureScratch, totals) + index * sizeof(Measure);
}

// Called by thread 0 of a block, as the next.
template <class Memory>
NANWATCH_BITS void AddToTotals(const MeasureState& block, uint32_t index) noexcept {
  const uint64_t total = TotalAt(block.list.head, index);
  Memory::AddDoubleInDevice(total + __builtin_offsetof(Measure, sum), block.sum[0]);
  Memory::AddDoubleInDevice(total + __builtin_offsetof(Measure, squares), block.squares[0]);
  Memory::RaiseInDevice(total + __builtin_offsetof(Measure, largest), block.largest[0]);
  Memory::AddLongInDevice(total + __builtin_offsetof(Measure, zeros), block.zeros[0]);
}

template <class Memory>
NANWATCH_BITS void TellMeasures(const MeasureState& block, Place place) noexcept {
  const LaunchHead& head = block.list.head;
  // Without entries it looks at nothing, and has no slot.
  if (head.output_count != 0) {
    const uint64_t blocks_done = head.scratch + __builtin_offsetof(MeasureScratch, blocks_done);
    if (Memory::AddInDevice(blocks_done, 1) != place.blocks - 1) return;
    Memory::StoreInDevice(blocks_done, 0u);
    auto* const result = reinterpret_cast<MeasureResult*>(head.result);
    NANWATCH_NO_UNROLL
    for (uint32_t i = 0; i < head.output_count; ++i) {
      const uint64_t total = TotalAt(head, i);
      Measure& told = result->measures[i];
      told.sum = Memory::TakeDoubleInDevice(total + __builtin_offsetof(Measure, sum));
      told.squares = Memory::TakeDoubleInDevice(total + __builtin_offsetof(Measure, squares));
      told.largest = Memory::TakeDoubleInDevice(total + __builtin_offsetof(Measure, largest));
      told.zeros = __builtin_bit_cast(
          uint64_t, Memory::TakeDoubleInDevice(total + __builtin_offsetof(Measure, zeros)));
    }
    Memory::PublishToHost(reinterpret_cast<uint64_t>(&result->measures_ticket), head.ticket);
  }
  if (head.progress != 0) Memory::PublishToHost(head.progress, head.ticket);
}

// All that one block does once the launch is copied.
template <class Memory, class Team>
NANWATCH_BITS void MeasureListBlock(MeasureState& block, Place place, Team& team) noexcept {
  PlanList(block.list, team);
  const uint32_t end = block.list.tiles_before[block.list.head.output_count];
  uint32_t index = 0;
  NANWATCH_NO_UNROLL
  for (uint32_t tile = place.block; tile < end;) {
    NANWATCH_NO_UNROLL
    while (block.list.tiles_before[index + 1] <= tile) ++index;
    team.Each([&](uint32_t thread, Tally&) {
      MeasureTiles<Memory>(block, index, tile, place.blocks, thread);
    });
    AddUpThreads(block, team);
    team.Each([&](uint32_t thread, Tally&) {
      if (thread == 0) AddToTotals<Memory>(block, index);
    });
    const uint32_t left = block.list.tiles_before[index + 1] - tile;
    tile += (left + place.blocks - 1) / place.blocks * place.blocks;
  }
  team.Each([&](uint32_t thread, Tally&) {
    if (thread == 0) TellMeasures<Memory>(block, place);
  });
}

}  // namespace nanwatch::device
