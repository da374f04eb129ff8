// SPDX-License-Identifier: Apache-2.0
// The kernel that looks at a whole list of tensors (list_launch.h), as functions for a GPU and for
// a CPU, as in check_kernel.h, whose phases, memory order and costs hold here too.
//
//   every block          plan    how many tiles lie before each entry
//                        scan    its tiles of the gate
//                        judge   OR the bad entries into the scratch, add 1 to blocks_done
//   the last one to add  clean:  nothing
//                        bad:    scan what stands behind the gate, count the first bad entries,
//                                fill *result, publish
//                        always: scratch back to zero; *progress where the launch has one
//
// Tiles. Each entry is cut into tiles of kTileUnits vectors, what all threads of a block load in
// one turn; every entry has one at least, and block b takes tiles b, b + blocks, b + 2 blocks ...
// So a hundred small tensors are on a hundred blocks at once, each of which waits for memory once,
// and a large one is spread over all. Equal parts of all vectors, as check_kernel.h cuts them,
// would have given a run of small tensors to one block, which waits for each of them in turn.
//
// The rest of the list is scanned by one block (64 KiB in flight: about 80 GB/s; an estimate, never
// measured), for the reason for which one counts: blocks must not wait for each other.
#pragma once

#include <cstdint>

#include "shim/device/check_kernel.h"
#include "shim/device/list_launch.h"

namespace nanwatch::device {

inline constexpr uint64_t kTileUnits = uint64_t{kThreadsPerBlock} * kScanLoads;  // 64 KiB

// Running sums are taken in groups of so many entries, one thread each.
inline constexpr uint32_t kListGroup = 16;
inline constexpr uint32_t kListGroups = (kListMax + kListGroup - 1) / kListGroup;

// How the parts of a type are looked at.
struct PartPlan {
  WordTest test;
  uint32_t part_bytes;
};

// What the threads of a block share.
struct ListState {
  LaunchHead head;
  ListEntry entries[kListMax];
  uint32_t tiles_before[kListMax + 1];  // the last: of all entries
  uint32_t group_tiles[kListGroups];
  PartPlan plans[wire::kElementTypeCount];
  uint32_t bad[kListWords];
  uint8_t counted[kListCountedMax];  // entries, rising
  uint32_t counted_count;
  uint32_t answers;  // 1: this block goes on to scan the rest and to count
  DeviceTensor tensor;
  CountState count;
};

NANWATCH_BITS constexpr uint64_t BytesOf(const ListEntry& entry) noexcept {
  const auto type = static_cast<wire::ElementType>(TypeOf(entry));
  return NumelOf(entry) * PartBytesOf(type) * static_cast<uint32_t>(PartsOf(type));
}

// 0 of one that holds nothing to look at.
NANWATCH_BITS constexpr uint32_t TilesOf(const ListEntry& entry) noexcept {
  const uint64_t bytes = entry.data == 0 ? 0 : BytesOf(entry);
  if (bytes == 0) return 0;
  const uint64_t tiles = (bytes / kVectorBytes + kTileUnits - 1) / kTileUnits;
  return tiles == 0 ? 1 : static_cast<uint32_t>(tiles);
}

// Blocks to launch `launch` with, on a GPU of that many multiprocessors. Host code.
inline uint32_t ListGridFor(const ListLaunch& launch, uint32_t multiprocessors) noexcept {
  uint64_t tiles = 0;
  for (uint32_t i = 0; i < launch.head.output_count; ++i) tiles += TilesOf(launch.entries[i]);
  return BlocksFor(tiles, multiprocessors);
}

// The launch, from the kernel's parameters, as CopyLaunch does.
NANWATCH_BITS void CopyList(const ListLaunch& launch, ListState& block, uint32_t thread) noexcept {
  static_assert(__builtin_offsetof(ListState, entries) == __builtin_offsetof(ListLaunch, entries));
  static_assert(sizeof(ListLaunch) <= uint64_t{8} * kThreadsPerBlock);
  const uint32_t entries = launch.head.output_count + launch.head.input_count;
  const uint64_t at = uint64_t{8} * thread;
  if (at >= sizeof(LaunchHead) + entries * sizeof(ListEntry)) return;
  __builtin_memcpy(reinterpret_cast<char*>(&block) + at,
                   reinterpret_cast<const char*>(&launch) + at, 8);
}

NANWATCH_BITS void PlanPart(wire::ElementType type, PartPlan& plan) noexcept {
  plan.part_bytes = PartBytesOf(type);
  WithFormat(type, [&](auto format) { plan.test = TestOf<decltype(format)>(); });
}

// tiles_before, in three phases: each entry's own, sums within groups, sums of groups.
template <class Team>
NANWATCH_BITS void PlanList(ListState& block, Team& team) noexcept {
  const uint32_t entries = block.head.output_count + block.head.input_count;
  team.Each([&](uint32_t thread, Tally&) {
    if (thread < kListWords) block.bad[thread] = 0;
    if (thread < kListMax) {
      block.tiles_before[thread + 1] = thread < entries ? TilesOf(block.entries[thread]) : 0;
    }
    if (thread < wire::kElementTypeCount) {
      PlanPart(static_cast<wire::ElementType>(thread), block.plans[thread]);
    }
  });
  team.Each([&](uint32_t thread, Tally&) {
    if (thread >= kListGroups) return;
    uint32_t sum = 0;
    NANWATCH_NO_UNROLL
    for (uint32_t i = thread * kListGroup; i < (thread + 1) * kListGroup && i < kListMax; ++i) {
      sum += block.tiles_before[i + 1];
      block.tiles_before[i + 1] = sum;
    }
    block.group_tiles[thread] = sum;
  });
  team.Each([&](uint32_t thread, Tally&) {
    if (thread == 0) block.tiles_before[0] = 0;
    if (thread >= kListMax) return;
    uint32_t before = 0;
    NANWATCH_NO_UNROLL
    for (uint32_t group = 0; group < thread / kListGroup; ++group) {
      before += block.group_tiles[group];
    }
    block.tiles_before[thread + 1] += before;
  });
}

// The parts of [begin, end) before its vectors and behind them, one for each of a few threads.
template <class Memory>
NANWATCH_BITS uint32_t BadAtEdges(const PartPlan& plan, uint64_t begin, uint64_t middle,
                                  uint64_t units, uint64_t end, uint32_t thread) noexcept {
  const bool is_head = thread < kEdgeSlots / 2;
  const uint64_t edge_end = is_head ? middle : end;
  const uint64_t address = (is_head ? begin : middle + units * kVectorBytes) +
                           uint64_t{thread % (kEdgeSlots / 2)} * plan.part_bytes;
  return address < edge_end ? BadPart<Memory>(plan.test, plan.part_bytes, address) : 0;
}

// One tile of an entry; its first one has the parts before and after the aligned middle, too.
template <class Memory, class State>
NANWATCH_BITS uint32_t BadInTile(const State& block, uint32_t index, uint32_t tile,
                                 uint32_t thread) noexcept {
  const ListEntry& entry = block.entries[index];
  const PartPlan& plan = block.plans[TypeOf(entry)];
  const uint64_t begin = entry.data, end = begin + BytesOf(entry);
  uint64_t middle = (begin + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
  if (middle > end) middle = end;
  const uint64_t units = (end - middle) / kVectorBytes;
  const uint64_t first = tile * kTileUnits;
  const uint64_t last = first + kTileUnits < units ? first + kTileUnits : units;
  uint32_t bad = plan.test.form == WordTest::kAdd
                     ? BadInRun<Memory, WordTest::kAdd>(plan.test, middle, first, last, thread)
                     : BadInRun<Memory, WordTest::kEqual>(plan.test, middle, first, last, thread);
  bad &= plan.test.tops;
  if (tile != 0 || thread >= kEdgeSlots) return bad;
  return bad | BadAtEdges<Memory>(plan, begin, middle, units, end, thread);
}

// Whether the entry is known to be bad, and that is all that is asked.
NANWATCH_BITS bool IsSettled(const ListState& block, uint32_t index) noexcept {
  if ((block.head.flags & kKindsOnly) == 0) return false;
  const uint32_t bad = *static_cast<volatile const uint32_t*>(&block.bad[index / 32]);
  return (bad >> index % 32 & 1) != 0;
}

// Tiles `tile`, `tile` + `step` ... before `end`. `index`: an entry at or before that of the first.
template <class Memory>
NANWATCH_BITS void ScanTiles(ListState& block, uint32_t index, uint32_t tile, uint32_t step,
                             uint32_t end, uint32_t thread) noexcept {
  NANWATCH_NO_UNROLL
  for (; tile < end; tile += step) {
    NANWATCH_NO_UNROLL
    while (block.tiles_before[index + 1] <= tile) ++index;
    Memory::ForgetBlock();
    if (IsSettled(block, index)) continue;
    if (BadInTile<Memory>(block, index, tile - block.tiles_before[index], thread) != 0) {
      Memory::OrInBlock(&block.bad[index / 32], 1u << index % 32);
    }
  }
}

// What a launch that only checks has to say besides: nothing. See SumsOfBlock.
struct NoSums {
  NANWATCH_BITS void AddToScratch() const noexcept {}
  NANWATCH_BITS void TakeFromScratch() const noexcept {}
  NANWATCH_BITS void Tell() const noexcept {}
};

// As Judge. The bits of entries go before the word that says that there are any.
template <class Memory, class Sums>
NANWATCH_BITS void JudgeList(ListState& block, Place place, Sums sums) noexcept {
  const LaunchHead& head = block.head;
  block.answers = 0;
  uint32_t any = 0;
  NANWATCH_NO_UNROLL
  for (uint32_t word = 0; word < kListWords; ++word) any |= block.bad[word];
  if (place.blocks > 1) {
    const uint64_t bad_outputs = head.scratch + __builtin_offsetof(LaunchScratch, bad_outputs);
    const uint64_t blocks_done = head.scratch + __builtin_offsetof(LaunchScratch, blocks_done);
    const uint64_t bad_entries = head.scratch + __builtin_offsetof(LaunchScratch, bad_entries);
    if (any != 0) {
      NANWATCH_NO_UNROLL
      for (uint32_t word = 0; word < kListWords; ++word) {
        if (block.bad[word] != 0) Memory::OrInDevice(bad_entries + 4 * word, block.bad[word]);
      }
      Memory::OrInDevice(bad_outputs, 1u);
    }
    sums.AddToScratch();
    if (Memory::AddInDevice(blocks_done, 1) != place.blocks - 1) return;
    any = Memory::TakeInDevice(bad_outputs);
    if (any != 0) {
      NANWATCH_NO_UNROLL
      for (uint32_t word = 0; word < kListWords; ++word) {
        block.bad[word] = Memory::TakeInDevice(bad_entries + 4 * word);
      }
    }
    sums.TakeFromScratch();
    Memory::StoreInDevice(blocks_done, 0u);
  }
  sums.Tell();
  if (any != 0) {
    auto* const result = reinterpret_cast<ListResult*>(head.result);
    if (result->ticket != head.ticket) {
      block.answers = 1;  // the result, then progress, come at the end
      return;
    }
    AddHit<Memory>(head, result);
  }
  if (head.progress != 0) Memory::PublishToHost(head.progress, head.ticket);
}

// Which of the bad entries are counted.
NANWATCH_BITS void ChooseCounted(ListState& block) noexcept {
  uint32_t count = 0;
  block.counted_count = 0;
  if ((block.head.flags & kKindsOnly) != 0) return;
  NANWATCH_NO_UNROLL
  for (uint32_t i = 0; i < block.head.output_count + block.head.input_count; ++i) {
    const bool of_gate = i < block.head.output_count;
    const bool has_room =
        count < (of_gate && block.head.input_count != 0 ? uint32_t{kGateCountedMax}
                                                        : uint32_t{kListCountedMax});
    if (!has_room || (block.bad[i / 32] >> i % 32 & 1) == 0) continue;
    block.counted[count++] = static_cast<uint8_t>(i);
  }
  block.counted_count = count;
}

// What the last block does where the gate is bad.
template <class Memory, class Team>
NANWATCH_BITS void AnswerList(ListState& block, Team& team) noexcept {
  const LaunchHead& head = block.head;
  const uint32_t gate = head.output_count, entries = gate + head.input_count;
  if (head.input_count != 0) {
    team.Each([&](uint32_t thread, Tally&) {
      ScanTiles<Memory>(block, gate, block.tiles_before[gate], 1, block.tiles_before[entries],
                        thread);
    });
  }
  team.Each([&](uint32_t thread, Tally&) {
    if (thread != 0) return;
    block.count.any_brief = 0;
    ChooseCounted(block);
  });
  NANWATCH_NO_UNROLL
  for (uint32_t i = 0; i < block.counted_count; ++i) {
    team.Each([&](uint32_t thread, Tally&) {
      if (thread != 0) return;
      const ListEntry& entry = block.entries[block.counted[i]];
      block.tensor.data = entry.data;
      block.tensor.numel = static_cast<int64_t>(NumelOf(entry));
      block.tensor.type = TypeOf(entry);
      block.tensor.ndim = 0;
    });
    CountTensor<Memory>(head, block.tensor, /*is_clean=*/false, block.count, team,
                        [&head, i](const TensorCounts& found) {
                          auto* const result = reinterpret_cast<ListResult*>(head.result);
                          result->kinds[i] = KindsOf(found);
                          result->counts[i] = found;
                        });
  }
  team.Each([&](uint32_t thread, Tally&) {
    if (thread != 0) return;
    auto* const result = reinterpret_cast<ListResult*>(head.result);
    NANWATCH_NO_UNROLL
    for (uint32_t i = 0; i < block.counted_count; ++i) result->entry[i] = block.counted[i];
    result->counted = block.counted_count;
    NANWATCH_NO_UNROLL
    for (uint32_t word = 0; word < kListWords; ++word) result->bad[word] = block.bad[word];
    PublishFirst<Memory>(head, block.count.any_brief, result);
  });
}

// All that one block does once the launch is copied.
template <class Memory, class Team>
NANWATCH_BITS void CheckListBlock(ListState& block, Place place, Team& team) noexcept {
  PlanList(block, team);
  team.Each([&](uint32_t thread, Tally&) {
    ScanTiles<Memory>(block, 0, place.block, place.blocks,
                      block.tiles_before[block.head.output_count], thread);
  });
  team.Each([&](uint32_t thread, Tally&) {
    if (thread == 0) JudgeList<Memory>(block, place, NoSums{});
  });
  if (block.answers != 0) AnswerList<Memory>(block, team);
}

}  // namespace nanwatch::device
