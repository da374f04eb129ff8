// SPDX-License-Identifier: Apache-2.0
// What a block of nanwatch_check_batch (check_batch.h) knows, and how it reads one tile of a
// tensor: 64 KiB side by side, or the sample of 1 MiB.
//
// Of what is bad the kinds are wanted at once, for a -Inf alone is no hit. A thread that meets
// something bad reads its share of the tile again, part by part. So kinds are exact wherever all
// was read, and nothing needs to be searched for them once figures are rationed.
//
// Samples. A thread's warp reads one run of a stripe. Which one is drawn for each stripe anew, so
// that a bad column of a matrix, whose rows are some number of stripes, is not hidden until its
// phase comes: nearly every launch meets it.
#pragma once

#include <cstdint>

#include "shim/device/batch_launch.h"
#include "shim/device/check_kernel.h"
#include "shim/device/check_list.h"

namespace nanwatch::device {

static_assert(kBatchElementShifts == kElementShifts);
static_assert(uint64_t{1} << kTileShift == kTileUnits * kVectorBytes);
static_assert(uint64_t{1} << kSampledTileShift == kSamplePhases << kTileShift);

inline constexpr uint32_t kSampleRunUnits = kSampleRunBytes / kVectorBytes;
inline constexpr uint32_t kSampleStripeUnits = kSampleStripeBytes / kVectorBytes;
inline constexpr uint32_t kStripesOfTile = kTileUnits / kSampleRunUnits;
inline constexpr uint32_t kStripesOfTurn = kThreadsPerBlock / kSampleRunUnits;
static_assert(kSampleRunUnits == 32);  // a warp

inline constexpr uint32_t kAllUnits = kStripesOfTile * kSampleStripeUnits;  // that a tile spans

inline constexpr uint32_t kKinds = 3;
inline constexpr uint32_t kFoundWords = 2;

// What the threads of a block share. Begins as the launch does.
struct BatchState {
  LaunchHead head;
  uint32_t phase;
  uint32_t unused;
  uint32_t ends[kBatchEntriesMax];
  BatchEntry entries[kBatchTensorsMax];

  PartPlan plans[wire::kElementTypeCount];
  uint32_t found[kKinds][kFoundWords];  // as in BatchScratch
  enum Step : uint32_t { kEnd, kHelp, kAnswer };
  uint32_t step;
  uint32_t rest_ends[kBatchTensorsMax];  // as `ends`, of what is read on a hit
  uint32_t left_out[kFoundWords];     // bit i % 32 of [i / 32]: the rest has no room for tensor i
  uint32_t next_tile;                 // of the rest, where there is one block
  uint32_t taken[2];                  // tiles of the rest: the one that is read, and the next
  uint8_t counted[kBatchCountedMax];  // tensors, in the order of their figures
  uint32_t counted_count;
  DeviceTensor tensor;
  CountState count;
};

NANWATCH_BITS uint32_t TensorsOf(const BatchState& block) noexcept {
  return block.head.output_count + block.head.input_count;
}

// The launch, from the kernel's parameters, as CopyLaunch does, and what else a block begins with.
NANWATCH_BITS void CopyBatch(const BatchLaunch& launch, BatchState& block,
                             uint32_t thread) noexcept {
  static_assert(__builtin_offsetof(BatchState, entries) ==
                __builtin_offsetof(BatchLaunch, entries));
  static_assert(sizeof(BatchLaunch) / 8 + 32 + wire::kElementTypeCount <= kThreadsPerBlock);
  const uint32_t last = kThreadsPerBlock - 1 - thread;
  if (last < wire::kElementTypeCount) {
    PlanPart(static_cast<wire::ElementType>(last), block.plans[last]);
  } else if (last == 32) {
    for (uint32_t kind = 0; kind < kKinds; ++kind) block.found[kind][0] = block.found[kind][1] = 0;
    block.next_tile = 0;
  }
  const uint32_t tensors = launch.head.output_count + launch.head.input_count;
  const uint64_t at = uint64_t{8} * thread;
  if (at >= __builtin_offsetof(BatchLaunch, entries) + tensors * sizeof(BatchEntry)) return;
  __builtin_memcpy(reinterpret_cast<char*>(&block) + at,
                   reinterpret_cast<const char*>(&launch) + at, 8);
}

// ---- one tile

// What KindsOfParts has to know of a tensor.
struct TypedParts {
  uint32_t part_bytes;
  uint32_t type;
};

// A tensor's parts before the first multiple of 16 bytes and behind the last.
struct Edges {
  uint64_t middle, tail, end;
};
NANWATCH_BITS Edges EdgesOf(const BatchEntry& entry) noexcept {
  const uint64_t end = entry.data + BatchBytesOf(entry);
  uint64_t middle = (entry.data + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
  if (middle > end) middle = end;
  return {middle, middle + (end - middle) / kVectorBytes * kVectorBytes, end};
}

// Which run of a stripe a launch reads: in sixteen successive phases each of them once.
NANWATCH_BITS constexpr uint32_t SampledRun(uint32_t stripe, uint64_t data,
                                            uint32_t phase) noexcept {
  constexpr uint32_t kGolden = 0x9e3779b1;
  const uint32_t drawn = (stripe + static_cast<uint32_t>(data >> 9)) * kGolden >> 28;
  return (drawn + phase) % kSamplePhases;
}

// One tile of a tensor, as a thread of the block reads it.
struct TileShare {
  uint32_t index;  // of the tensor
  uint32_t tile;   // of those of the tensor
  uint32_t thread;
  bool is_sampled;
};

// The vectors of a tile: those between the first multiple of 16 bytes in the tensor and the last.
struct TileVectors {
  uint64_t begin;   // address of the first
  uint32_t units;   // so many from there on are the tensor's; more than the tile spans is as good
  uint32_t stripe;  // the first that is sampled
};
NANWATCH_BITS TileVectors VectorsOf(const BatchEntry& entry, uint32_t tile,
                                    bool is_sampled) noexcept {
  const uint64_t end = entry.data + BatchBytesOf(entry);
  const uint64_t middle = (entry.data + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
  const uint64_t begin = middle + (uint64_t{tile} << (is_sampled ? kSampledTileShift : kTileShift));
  const uint64_t units = begin < end ? (end - begin) / kVectorBytes : 0;
  return {begin, units < kAllUnits ? static_cast<uint32_t>(units) : kAllUnits,
          tile * kStripesOfTile};
}

// Which vector of the tile the thread reads in turn `i` of kScanLoads; may lie behind the end. If
// one does, so do all of later turns.
NANWATCH_BITS uint32_t UnitOf(const BatchState& block, const TileVectors& vectors,
                              const TileShare& share, uint32_t i) noexcept {
  if (!share.is_sampled) return share.thread + i * kThreadsPerBlock;
  const uint32_t stripe = share.thread / kSampleRunUnits + i * kStripesOfTurn;
  const uint32_t run =
      SampledRun(vectors.stripe + stripe, block.entries[share.index].data, block.phase);
  return stripe * kSampleStripeUnits + run * kSampleRunUnits + share.thread % kSampleRunUnits;
}

// A turn behind the end reads the thread's first vector again, which is cheaper than a branch
// around each load.
template <class Memory, WordTest::Form kForm>
NANWATCH_BITS uint32_t BadVectors(const BatchState& block, const WordTest& of_type,
                                  const TileVectors& of_tile, const TileShare& share) noexcept {
  const WordTest test = of_type;
  const uint32_t first = UnitOf(block, of_tile, share, 0);
  if (first >= of_tile.units) return 0;
  Vector vectors[kScanLoads];
  for (uint32_t i = 0; i < kScanLoads; ++i) {
    const uint32_t unit = UnitOf(block, of_tile, share, i);
    vectors[i] = Memory::LoadVector(of_tile.begin +
                                    uint64_t{unit < of_tile.units ? unit : first} * kVectorBytes);
  }
  uint32_t bad = 0;
  for (uint32_t i = 0; i < kScanLoads; ++i) bad |= BadVector<kForm>(test, vectors[i]);
  return bad & test.tops;
}

// Of which kinds what is bad in the thread's share is: its vectors, and where they are few all
// parts before and behind those of the tensor.
template <class Memory>
NANWATCH_BITS uint32_t KindsInShare(const BatchState& block, const TileVectors& of_tile,
                                    const TileShare& share) noexcept {
  const BatchEntry& entry = block.entries[share.index];
  const TypedParts parts = {block.plans[TypeOf(entry)].part_bytes, TypeOf(entry)};
  uint32_t kinds = 0;
  NANWATCH_NO_UNROLL
  for (uint32_t i = 0; i < kScanLoads + 2; ++i) {
    uint64_t begin = 0, end = 0;
    if (i < kScanLoads) {
      const uint32_t unit = UnitOf(block, of_tile, share, i);
      if (unit >= of_tile.units) continue;
      begin = of_tile.begin + uint64_t{unit} * kVectorBytes;
      end = begin + kVectorBytes;
    } else {
      if (share.tile != 0 || share.thread >= kEdgeSlots) return kinds;
      const Edges edges = EdgesOf(entry);
      begin = i == kScanLoads ? entry.data : edges.tail;
      end = i == kScanLoads ? edges.middle : edges.end;
    }
    kinds |=
        KindsOfParts<Memory>(parts, begin, static_cast<uint32_t>(end - begin) / parts.part_bytes);
  }
  return kinds;
}

// Marks in block.found what is in the thread's share.
template <class Memory>
NANWATCH_BITS void ScanShare(BatchState& block, const TileShare& share) noexcept {
  const BatchEntry& entry = block.entries[share.index];
  const PartPlan& plan = block.plans[TypeOf(entry)];
  const TileVectors of_tile = VectorsOf(entry, share.tile, share.is_sampled);
  uint32_t bad = plan.test.form == WordTest::kAdd
                     ? BadVectors<Memory, WordTest::kAdd>(block, plan.test, of_tile, share)
                     : BadVectors<Memory, WordTest::kEqual>(block, plan.test, of_tile, share);
  Memory::ForgetBlock();
  if (share.tile == 0 && share.thread < kEdgeSlots) {
    const Edges edges = EdgesOf(entry);
    bad |= BadAtEdges<Memory>(plan, entry.data, edges.middle,
                              (edges.tail - edges.middle) / kVectorBytes, edges.end, share.thread);
  }
  if (bad == 0) return;
  Memory::ForgetBlock();
  const uint32_t kinds = KindsInShare<Memory>(block, of_tile, share);
  NANWATCH_NO_UNROLL
  for (uint32_t kind = 0; kind < kKinds; ++kind) {
    if ((kinds >> kind & 1) == 0) continue;
    Memory::OrInBlock(&block.found[kind][share.index / 32], 1u << share.index % 32);
  }
}

}  // namespace nanwatch::device
