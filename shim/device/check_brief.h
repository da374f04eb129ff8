// SPDX-License-Identifier: Apache-2.0
// Of which kinds something in a tensor is, where its step has had its share of counting: whether it
// is bad at all, wherever that is, and what was met first. It reads as the scan does, 16 bytes at a
// time where it can, and says nothing of the rest.
//
// One block reads 64 KiB in each turn: about 80 GB/s (65,536 / 0.8 us of latency; an estimate,
// never measured), 12 ms for each GB up to the first NaN or +Inf, or of a clean tensor to its end.
// Of elements in rows that do not stand on 16 bytes it reads 2,048 parts in each turn, 2.5 * 10^9 a
// second. So a step in which all is bad costs, beyond the second of what it has counted in full, 12
// ms for each GB of clean inputs of its bad ops, weights and saved activations: 0.2 s for the
// weights of 7 billion parameters in bfloat16, 1.8 s for all the memory of an H200.
//
// -Inf alone says more than "bad", for masks are made of it. So where it is met the search goes on,
// for a NaN beside it, until a thread has met it in kMaskTurnsMax turns: 4 MiB, and something like
// half a millisecond.
#pragma once

#include <cstdint>

#include "shim/device/check_count.h"
#include "shim/device/check_launch.h"
#include "shim/device/check_scan.h"
#include "shim/device/check_walk.h"

namespace nanwatch::device {

inline constexpr uint32_t kMaskTurnsMax = 64;

// In the word that the threads share, above the kinds: no more need be met.
inline constexpr uint32_t kMetEnough = 1u << 8;

// Of `count` parts from `address` on. Parts: a Walk, or what else has their size and type.
template <class Memory, class Parts>
NANWATCH_BITS uint32_t KindsOfParts(const Parts& parts, uint64_t address, uint32_t count) noexcept {
  uint32_t kinds = 0;
  NANWATCH_NO_UNROLL
  for (uint32_t i = 0; i < count; ++i) {
    Memory::ForgetBlock();
    const uint64_t word = LoadPartOf<Memory>(parts.part_bytes, address + i * parts.part_bytes);
    WithFormat(static_cast<wire::ElementType>(parts.type), [&](auto format) {
      using Format = decltype(format);
      kinds |= Format::Kinds(static_cast<typename Format::Word>(word));
    });
  }
  return kinds;
}

// Of a thread's units among [begin, end). Those of the first turn are no units but head and tail.
template <class Memory>
NANWATCH_BITS uint32_t KindsInTurn(const Walk& walk, bool of_edges, uint64_t begin, uint64_t end,
                                   uint32_t thread) noexcept {
  uint32_t kinds = 0;
  NANWATCH_NO_UNROLL
  for (uint64_t unit = begin + thread; unit < end; unit = UnitAfter(unit, 1)) {
    Memory::ForgetBlock();
    uint64_t units[] = {unit}, addresses[] = {walk.base + unit * kVectorBytes};
    uint32_t parts = walk.unit_bytes / walk.part_bytes;
    if (of_edges) {
      addresses[0] = unit == 0 ? walk.head : walk.tail;
      parts = unit == 0 ? walk.head_parts : walk.tail_parts;
    } else if (walk.is_one_run == 0) {
      FindUnits<Memory>(walk, units, addresses);
    }
    kinds |= KindsOfParts<Memory>(walk, addresses[0], parts);
  }
  return kinds;
}

// The walk of a scan, for MeetKinds. A run of a form that few types have is read as rows are: with
// a loop of its own the kernel would not fit its registers.
NANWATCH_BITS constexpr void PlanBrief(Walk& walk) noexcept {
  PlanScanOfDims(walk);
  if (walk.is_one_run == 0 || walk.test.form == WordTest::kAdd) return;
  walk.is_one_run = 0;
  walk.ndim = 1;
  walk.dims[0].size = walk.units;
  walk.dims[0].stride = kVectorBytes;
}

template <class Memory>
NANWATCH_BITS uint32_t BadInTurn(const Walk& walk, uint64_t begin, uint64_t end,
                                 uint32_t thread) noexcept {
  const uint32_t bad = walk.is_one_run == 0 ? BadScattered<Memory>(walk, begin, end, thread)
                                            : BadInRun<Memory, WordTest::kAdd>(walk.test, walk.base,
                                                                               begin, end, thread);
  return bad & walk.test.tops;
}

// One of a block's threads; the walk is PlanBrief's. `met` lies in the block's memory. A number of
// 32 bits for the turns, 2^43 units or more, leaves registers to what is loaded in one.
template <class Memory>
NANWATCH_BITS void MeetKinds(const Walk& walk, uint32_t thread, uint32_t* met) noexcept {
  uint32_t mask_turns = 0;
  NANWATCH_NO_UNROLL
  for (uint32_t turn = 0;; ++turn) {
    Memory::ForgetBlock();
    const bool of_edges = turn == 0;
    const uint64_t units = of_edges ? 2 : walk.units;
    const uint64_t in_turn =
        uint64_t{kThreadsPerBlock} * (walk.is_one_run != 0 ? kScanLoads : kScatterLoads);
    const uint64_t begin = of_edges ? 0 : (turn - 1) * in_turn;
    if (begin >= units) return;
    const uint64_t end = begin + in_turn < units ? begin + in_turn : units;
    if (of_edges || BadInTurn<Memory>(walk, begin, end, thread) != 0) {
      const uint32_t kinds = KindsInTurn<Memory>(walk, of_edges, begin, end, thread);
      const bool is_mask = kinds == wire::kHasNegInf && ++mask_turns < kMaskTurnsMax;
      if (kinds != 0) Memory::OrInBlock(met, is_mask ? kinds : kinds | kMetEnough);
    }
    if ((*static_cast<volatile const uint32_t*>(met) & kMetEnough) != 0) return;
  }
}

// What the host is told: one element of each kind, of which the index is not known.
NANWATCH_BITS constexpr TensorCounts CountsOfMet(uint32_t met) noexcept {
  TensorCounts counts = CountsOf(EmptyTally(), 1);
  counts.nan = (met & wire::kHasNan) != 0 ? 1 : 0;
  counts.pos_inf = (met & wire::kHasPosInf) != 0 ? 1 : 0;
  counts.neg_inf = (met & wire::kHasNegInf) != 0 ? 1 : 0;
  return counts;
}

}  // namespace nanwatch::device
