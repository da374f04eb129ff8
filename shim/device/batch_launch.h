// SPDX-License-Identifier: Apache-2.0
// What a check of a batch of ops' outputs is asked and what it answers: the contract between the
// host (device_checker.h) and the kernel nanwatch_check_batch (check_batch.h). What it shares with
// the other kernels is in check_launch.h.
//
// A batch is a few *entries*, which are always checked, and a few *others*, which are read on a hit
// only. Each is one run of memory. Small entries are read in full. Of a larger one each launch
// reads a sixteenth, and sixteen launches of successive phases read every byte.
//
//   kernel: no NaN, no +Inf met  -> nothing, but *progress where the launch has it
//           a hit                -> reads the sampled entries in full, then the others, and
//                                   answers: what is in each, and figures of the first bad ones
//
// A -Inf alone is no hit, for masks are made of it. After a hit it is reported as well, and with
// kReportMasks without one.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"
#include "shim/device/check_launch.h"
#include "shim/device/list_launch.h"

namespace nanwatch::device {

inline constexpr int kBatchEntriesMax = 24;
inline constexpr int kBatchOthersMax = 24;
inline constexpr int kBatchTensorsMax = kBatchEntriesMax + kBatchOthersMax;

using BatchEntry = ListEntry;  // see MakeEntry

// Entries of at most so many bytes are read in full.
inline constexpr uint64_t kReadInFullBytes = uint64_t{1} << 20;
// A larger one is cut into stripes of 16 runs. Of each stripe one run is read.
inline constexpr uint32_t kSampleRunBytes = 512;
inline constexpr uint32_t kSamplePhases = 16;
inline constexpr uint32_t kSampleStripeBytes = kSampleRunBytes * kSamplePhases;

// In the head's flags: every entry is read in full.
inline constexpr uint32_t kReadAll = 2;
// -Inf alone is answered too, by what each entry holds: nothing else is read for that, and nothing
// counted. Not for a launch in a graph, which gives its figures once.
inline constexpr uint32_t kReportMasks = 4;

// Read on a hit, at most, beyond what was read before it. What does not fit is not read in full.
inline constexpr uint64_t kBatchRestBytesMax = uint64_t{4} << 30;

struct BatchLaunch {
  LaunchHead head;  // `output_count` entries, `input_count` others
  uint32_t phase;   // modulo kSamplePhases
  uint32_t unused;
  uint32_t ends[kBatchEntriesMax];       // tiles of the entries up to and with this one
  BatchEntry entries[kBatchTensorsMax];  // the others follow the last entry
};
static_assert(sizeof(BatchLaunch) == 928);

// log2 of the bytes of an element, four bits for each type; 15 where it is not read.
inline constexpr uint64_t kBatchElementShifts = 0xfff0'0000'2341'123fULL;

// 0: there is nothing to read.
constexpr uint64_t BatchBytesOf(const BatchEntry& entry) noexcept {
  const uint32_t shift = kBatchElementShifts >> 4 * (TypeOf(entry) & 15u) & 15;
  const bool is_read = entry.data != 0 && TypeOf(entry) < 16 && shift != 15;
  return is_read ? NumelOf(entry) << shift : 0;
}
constexpr bool IsSampled(uint64_t bytes, uint32_t flags) noexcept {
  return bytes > kReadInFullBytes && (flags & kReadAll) == 0;
}

// A tile is what a block's threads load at once: 64 KiB, or the sample of 1 MiB.
inline constexpr uint32_t kTileShift = 16;
inline constexpr uint32_t kSampledTileShift = 20;
constexpr uint32_t BatchTilesOf(uint64_t bytes, uint32_t flags) noexcept {
  const uint32_t shift = IsSampled(bytes, flags) ? kSampledTileShift : kTileShift;
  return static_cast<uint32_t>((bytes + (uint64_t{1} << shift) - 1) >> shift);
}

// Fills `ends` of a launch whose head and entries are there. The tiles of all entries.
constexpr uint32_t PlanBatch(BatchLaunch& launch) noexcept {
  uint32_t tiles = 0;
  for (uint32_t i = 0; i < launch.head.output_count; ++i) {
    tiles += BatchTilesOf(BatchBytesOf(launch.entries[i]), launch.head.flags);
    launch.ends[i] = tiles;
  }
  return tiles;
}

// In the place of a LaunchScratch, zero between launches as that is.
struct BatchScratch {
  uint32_t blocks_done;
  uint32_t seen;       // kSeenBad, kSeenHit
  uint32_t next_tile;  // of what is read after a hit: the first that no block has taken
  uint32_t found[3]
                [2];  // of each kind, in the order of its bits: bit i % 32 of [i / 32] is tensor i
};
static_assert(sizeof(BatchScratch) <= sizeof(LaunchScratch));
inline constexpr uint32_t kSeenBad = 1;  // something is in `found`
inline constexpr uint32_t kSeenHit = 2;  // a NaN or +Inf

// Figures of so many bad entries, and of so many bad tensors of all: the first with a NaN or +Inf,
// then the first with -Inf alone.
inline constexpr int kBatchEntriesCounted = 8;
inline constexpr int kBatchCountedMax = 14;

// In BatchResult::states, beside the kinds: the tensor was read in full.
inline constexpr uint8_t kWasReadInFull = 8;

// Lies where a CheckResult does, and begins as one. Tensor i is an entry if it is less than their
// number, else an other. Indices of `counts` are places in memory.
struct BatchResult {
  uint64_t ticket;
  uint64_t hits;
  uint64_t step;
  uint8_t kinds[16];  // of `counts`, in the same order
  // 1: of at least one of `counts` the kinds alone are known: its counts are 1 of each, its
  // first_bad is ~0.
  uint64_t brief;
  uint64_t again;
  uint64_t unused_sums_ticket;       // never written
  uint8_t states[kBatchTensorsMax];  // of each tensor: wire::kHasNan | ... | kWasReadInFull
  uint8_t tensor[16];                // which one counts[i] is of
  uint32_t counted;                  // how many of `counts` are filled
  uint32_t unused[11];
  TensorCounts counts[kBatchCountedMax];

  // All that was met; of a tensor that was read in full all that there is.
  [[nodiscard]] constexpr uint8_t KindsOf(uint32_t i) const noexcept {
    return states[i] & (wire::kHasNan | wire::kHasPosInf | wire::kHasNegInf);
  }
  [[nodiscard]] constexpr bool WasReadInFull(uint32_t i) const noexcept {
    return (states[i] & kWasReadInFull) != 0;
  }
  // Null: there was no room, or the tensor is clean.
  [[nodiscard]] constexpr const TensorCounts* CountsOf(uint32_t i) const noexcept {
    for (uint32_t at = 0; at < counted && at < kBatchCountedMax; ++at) {
      if (tensor[at] == i) return &counts[at];
    }
    return nullptr;
  }
};
static_assert(sizeof(BatchResult) == sizeof(CheckResult));
static_assert(__builtin_offsetof(BatchResult, hits) == __builtin_offsetof(CheckResult, hits));
static_assert(__builtin_offsetof(BatchResult, step) == __builtin_offsetof(CheckResult, step));
static_assert(__builtin_offsetof(BatchResult, brief) == __builtin_offsetof(CheckResult, brief));
static_assert(__builtin_offsetof(BatchResult, again) == __builtin_offsetof(CheckResult, again));
static_assert(__builtin_offsetof(BatchResult, unused_sums_ticket) ==
              __builtin_offsetof(CheckResult, list_sums_ticket));

// What a slot holds after the launch of a batch.
inline BatchResult BatchOf(const CheckResult& result) noexcept {
  return __builtin_bit_cast(BatchResult, result);
}

}  // namespace nanwatch::device
