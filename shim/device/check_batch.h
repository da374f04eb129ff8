// SPDX-License-Identifier: Apache-2.0
// The kernel that checks a batch of ops' outputs (batch_launch.h), as functions for a GPU and for a
// CPU, as in check_kernel.h, whose memory order holds here too.
//
//   every block           scan    its tiles of the entries, in full or sampled
//                         judge   OR what is bad into the scratch
//   it sees a hit there   help    takes tiles of the rest from a counter, until none is left
//   every block           finish  adds 1 to blocks_done
//   the last one to add   no hit: nothing
//                         a hit:  takes what is left of the rest, counts the first bad tensors,
//                                 fills *result, publishes
//                         always: scratch back to zero; *progress where the launch has one
//
// Nobody waits for anybody: a block that has ended before the hit was seen does not help, and the
// last one reads what nobody has taken. Whatever another block took it has read before it added to
// blocks_done. The rest is the sampled entries in full, then the others; at worst one block reads
// all of it, kBatchRestBytesMax in about 50 ms (80 GB/s; an estimate, never measured).
#pragma once

#include <cstdint>

#include "shim/device/batch_launch.h"
#include "shim/device/batch_tile.h"
#include "shim/device/check_kernel.h"

namespace nanwatch::device {

// ---- the entries, and what is read on a hit

template <class Memory>
NANWATCH_BITS void ScanEntries(BatchState& block, Place place, uint32_t thread) noexcept {
  const uint32_t entries = block.head.output_count;
  const uint32_t tiles = entries == 0 ? 0 : block.ends[entries - 1];
  NANWATCH_NO_UNROLL
  for (uint32_t tile = place.block; tile < tiles; tile += place.blocks) {
    const uint32_t index = Memory::CountUpTo(block.ends, entries, tile);
    const uint32_t in_entry = index == 0 ? tile : tile - block.ends[index - 1];
    Memory::ForgetBlock();
    ScanShare<Memory>(block, {index, in_entry, thread,
                              IsSampled(BatchBytesOf(block.entries[index]), block.head.flags)});
  }
}

// One thread: what is left to read, and what of it has no room. The same in every block.
NANWATCH_BITS void PlanRest(BatchState& block) noexcept {
  constexpr uint64_t kTilesMax = kBatchRestBytesMax >> kTileShift;
  uint32_t tiles = 0;
  block.left_out[0] = block.left_out[1] = 0;
  NANWATCH_NO_UNROLL
  for (uint32_t i = 0; i < TensorsOf(block); ++i) {
    const uint64_t bytes = BatchBytesOf(block.entries[i]);
    const bool is_rest = i >= block.head.output_count || IsSampled(bytes, block.head.flags);
    const uint64_t wanted = is_rest ? BatchTilesOf(bytes, kReadAll) : 0;
    if (tiles + wanted <= kTilesMax) {
      tiles += static_cast<uint32_t>(wanted);
    } else {
      block.left_out[i / 32] |= 1u << i % 32;
    }
    block.rest_ends[i] = tiles;
  }
}

// A tile that nobody else reads.
template <class Memory>
NANWATCH_BITS uint32_t TakeTile(BatchState& block, Place place) noexcept {
  if (place.blocks == 1) return block.next_tile++;
  return Memory::AddInDevice(block.head.scratch + __builtin_offsetof(BatchScratch, next_tile), 1);
}

// Tiles of the rest until there is none left. While one is read the next is asked for.
template <class Memory, class Team>
NANWATCH_BITS void ReadRest(BatchState& block, Place place, Team& team) noexcept {
  team.Each([&](uint32_t thread, Tally&) {
    if (thread != 0) return;
    PlanRest(block);
    block.taken[0] = TakeTile<Memory>(block, place);
  });
  const uint32_t tensors = TensorsOf(block);
  NANWATCH_NO_UNROLL
  for (uint32_t turn = 0; block.taken[turn & 1] < block.rest_ends[tensors - 1]; ++turn) {
    team.Each([&](uint32_t thread, Tally&) {
      const uint32_t tile = block.taken[turn & 1];
      if (thread == 0) block.taken[~turn & 1] = TakeTile<Memory>(block, place);
      uint32_t index = Memory::CountUpTo(block.rest_ends, tensors < 32 ? tensors : 32, tile);
      if (index == 32) index += Memory::CountUpTo(block.rest_ends + 32, tensors - 32, tile);
      Memory::ForgetBlock();
      const uint32_t in_tensor = index == 0 ? tile : tile - block.rest_ends[index - 1];
      ScanShare<Memory>(block, {index, in_tensor, thread, /*is_sampled=*/false});
    });
  }
}

// ---- one thread of each block, between those

NANWATCH_BITS uint32_t SeenBy(const BatchState& block) noexcept {
  uint32_t bad = 0, hit = 0;
  NANWATCH_NO_UNROLL
  for (uint32_t kind = 0; kind < kKinds; ++kind) {
    const uint32_t any = block.found[kind][0] | block.found[kind][1];
    bad |= any;
    if ((1u << kind & ~uint32_t{wire::kHasNegInf}) != 0) hit |= any;
  }
  return (bad != 0 ? kSeenBad : 0) | (hit != 0 ? kSeenHit : 0);
}

// What the block has found, to the others. What any of them has seen.
template <class Memory>
NANWATCH_BITS uint32_t Report(const BatchState& block, Place place) noexcept {
  const uint32_t seen = SeenBy(block);
  if (place.blocks == 1) return seen;
  const uint64_t scratch = block.head.scratch;
  if (seen != 0) {
    const uint64_t found = scratch + __builtin_offsetof(BatchScratch, found);
    NANWATCH_NO_UNROLL
    for (uint32_t word = 0; word < kKinds * kFoundWords; ++word) {
      const uint32_t bits = block.found[word / kFoundWords][word % kFoundWords];
      if (bits != 0) Memory::OrInDevice(found + 4 * word, bits);
    }
    Memory::OrInDevice(scratch + __builtin_offsetof(BatchScratch, seen), seen);
  }
  return Memory::LoadInDevice(scratch + __builtin_offsetof(BatchScratch, seen));
}

// The scratch as it was, and in the last block what all have found.
template <class Memory>
NANWATCH_BITS void TakeFound(BatchState& block) noexcept {
  const uint64_t found = block.head.scratch + __builtin_offsetof(BatchScratch, found);
  NANWATCH_NO_UNROLL
  for (uint32_t word = 0; word < kKinds * kFoundWords; ++word) {
    block.found[word / kFoundWords][word % kFoundWords] |= Memory::TakeInDevice(found + 4 * word);
  }
  Memory::StoreInDevice(block.head.scratch + __builtin_offsetof(BatchScratch, next_tile), 0u);
}

NANWATCH_BITS bool HasAnswered(const LaunchHead& head) noexcept {
  return reinterpret_cast<const BatchResult*>(head.result)->ticket == head.ticket;
}

NANWATCH_BITS uint32_t KindsFound(const BatchState& block, uint32_t i) noexcept {
  uint32_t kinds = 0;
  NANWATCH_NO_UNROLL
  for (uint32_t kind = 0; kind < kKinds; ++kind) {
    kinds |= (block.found[kind][i / 32] >> i % 32 & 1) << kind;
  }
  return kinds;
}

// Entries with -Inf, and no more than that.
template <class Memory>
NANWATCH_BITS void PublishMasks(const BatchState& block) noexcept {
  auto* const result = reinterpret_cast<BatchResult*>(block.head.result);
  NANWATCH_NO_UNROLL
  for (uint32_t i = 0; i < TensorsOf(block); ++i) {
    const bool is_read =
        i < block.head.output_count && !IsSampled(BatchBytesOf(block.entries[i]), block.head.flags);
    result->states[i] = static_cast<uint8_t>(KindsFound(block, i) | (is_read ? kWasReadInFull : 0));
  }
  result->counted = 0;
  PublishFirst<Memory>(block.head, 1, result);
}

// The block has read what it reads. Is it the last, and is there something to answer?
template <class Memory>
NANWATCH_BITS void Finish(BatchState& block, Place place, uint32_t seen) noexcept {
  const LaunchHead& head = block.head;
  block.step = BatchState::kEnd;
  if (place.blocks > 1) {
    const uint64_t done = head.scratch + __builtin_offsetof(BatchScratch, blocks_done);
    if (Memory::AddInDevice(done, 1) != place.blocks - 1) return;
    Memory::StoreInDevice(done, 0u);
    seen = Memory::TakeInDevice(head.scratch + __builtin_offsetof(BatchScratch, seen));
  }
  if ((seen & kSeenHit) != 0 && !HasAnswered(head)) {
    block.step = BatchState::kAnswer;  // the scratch, the result and progress come at the end
    return;
  }
  if (seen != 0 && place.blocks > 1) TakeFound<Memory>(block);
  if (seen == kSeenBad && (head.flags & kReportMasks) != 0) return PublishMasks<Memory>(block);
  if ((seen & kSeenHit) != 0) AddHit<Memory>(head, reinterpret_cast<BatchResult*>(head.result));
  if (head.progress != 0) Memory::PublishToHost(head.progress, head.ticket);
}

// After the entries.
template <class Memory>
NANWATCH_BITS void JudgeBatch(BatchState& block, Place place) noexcept {
  const uint32_t seen = Report<Memory>(block, place);
  if (place.blocks > 1 && (seen & kSeenHit) != 0 && !HasAnswered(block.head)) {
    block.step = BatchState::kHelp;
    return;
  }
  Finish<Memory>(block, place, seen);
}

// ---- the answer

// Which bad tensors have figures.
NANWATCH_BITS void ChooseCounted(BatchState& block) noexcept {
  uint32_t count = 0, of_entries = 0;
  NANWATCH_NO_UNROLL
  for (uint32_t turn = 0; turn < 2; ++turn) {
    NANWATCH_NO_UNROLL
    for (uint32_t i = 0; i < TensorsOf(block); ++i) {
      const uint32_t kinds = KindsFound(block, i);
      if (kinds == 0 || (kinds == wire::kHasNegInf) != (turn == 1)) continue;
      const bool is_entry = i < block.head.output_count;
      if (count == kBatchCountedMax || (is_entry && of_entries == kBatchEntriesCounted)) continue;
      block.counted[count++] = static_cast<uint8_t>(i);
      of_entries += is_entry ? 1 : 0;
    }
  }
  block.counted_count = count;
}

// Thread 0, before a tensor is counted. Of one that may cost too much, or was not read in full, the
// kinds are known and the rest is not asked for.
template <class Memory>
NANWATCH_BITS void BeginCount(BatchState& block, uint32_t i) noexcept {
  const BatchEntry& entry = block.entries[i];
  CountState& count = block.count;
  block.tensor.data = entry.data;
  block.tensor.numel = static_cast<int64_t>(NumelOf(entry));
  block.tensor.type = TypeOf(entry);
  block.tensor.ndim = 0;
  PlanCount(block.tensor, count.walk);
  const bool is_left_out = (block.left_out[i / 32] >> i % 32 & 1) != 0;
  count.brief = is_left_out ? 1 : IsDear<Memory>(block.head, count.walk.units);
  count.any_brief |= count.brief;
}

NANWATCH_BITS void PutCounts(const BatchState& block, uint32_t at,
                             const TensorCounts& found) noexcept {
  auto* const result = reinterpret_cast<BatchResult*>(block.head.result);
  result->kinds[at] = static_cast<uint8_t>(KindsFound(block, block.counted[at]));
  result->tensor[at] = block.counted[at];
  result->counts[at] = found;
}

// Thread 0, at last.
template <class Memory>
NANWATCH_BITS void PublishBatch(const BatchState& block) noexcept {
  auto* const result = reinterpret_cast<BatchResult*>(block.head.result);
  NANWATCH_NO_UNROLL
  for (uint32_t i = 0; i < TensorsOf(block); ++i) {
    const bool is_left_out = (block.left_out[i / 32] >> i % 32 & 1) != 0;
    result->states[i] =
        static_cast<uint8_t>(KindsFound(block, i) | (is_left_out ? 0 : kWasReadInFull));
  }
  result->counted = block.counted_count;
  PublishFirst<Memory>(block.head, block.count.any_brief, result);
}

template <class Memory, class Team>
NANWATCH_BITS void AnswerBatch(BatchState& block, Place place, Team& team) noexcept {
  team.Each([&](uint32_t thread, Tally&) {
    if (thread != 0) return;
    if (place.blocks > 1) TakeFound<Memory>(block);
    block.count.any_brief = 0;
    ChooseCounted(block);
  });
  NANWATCH_NO_UNROLL
  for (uint32_t at = 0; at < block.counted_count; ++at) {
    team.Each([&](uint32_t thread, Tally&) {
      if (thread < kMergeSlots) block.count.tallies[thread] = EmptyTally();
      if (thread == 0) BeginCount<Memory>(block, block.counted[at]);
    });
    if (block.count.brief != 0) {
      team.Each([&](uint32_t thread, Tally&) {
        if (thread == 0) PutCounts(block, at, CountsOfMet(KindsFound(block, block.counted[at])));
      });
    } else {
      CountInFull<Memory>(block.count, team,
                          [&](const TensorCounts& found) { PutCounts(block, at, found); });
    }
  }
  team.Each([&](uint32_t thread, Tally&) {
    if (thread == 0) PublishBatch<Memory>(block);
  });
}

// All that one block does once the launch is copied.
template <class Memory, class Team>
NANWATCH_BITS void CheckBatchBlock(BatchState& block, Place place, Team& team) noexcept {
  team.Each([&](uint32_t thread, Tally&) { ScanEntries<Memory>(block, place, thread); });
  team.Each([&](uint32_t thread, Tally&) {
    if (thread == 0) JudgeBatch<Memory>(block, place);
  });
  NANWATCH_NO_UNROLL
  while (block.step != BatchState::kEnd) {
    ReadRest<Memory>(block, place, team);
    if (block.step == BatchState::kAnswer) return AnswerBatch<Memory>(block, place, team);
    team.Each([&](uint32_t thread, Tally&) {
      if (thread == 0) Finish<Memory>(block, place, Report<Memory>(block, place));
    });
  }
}

}  // namespace nanwatch::device
