// SPDX-License-Identifier: Apache-2.0
// What a check of a whole list of tensors is told and what it answers: a step's gradients, or what
// an update has written, in one launch. The contract between the host (device_checker.h) and the
// kernels nanwatch_check_list (check_list.h) and nanwatch_sum_list (sum_list.h); what they share
// with the other kernels is in check_launch.h. What measures them one by one: measure_launch.h.
//
// Every tensor is one run of memory, so that 16 bytes are enough to describe it. The first entries
// are the *gate*, which is always looked at; the rest is looked at only if the gate is bad.
//
//   kernel: gate clean  -> nothing, but *progress where the launch has it
//           gate bad    -> a bit for each entry that is bad, and figures of the first few of them
//
// nanwatch_sum_list is told the same and answers the same, and besides, always and first:
//
//           ListSums of the gate, then `sums_ticket`; only then what is above
//
// So whoever sees the ticket in *progress, or in `ticket`, sees the sums.
//
// nanwatch_check_list with kKindsOnly in the head's flags counts no entry.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"
#include "shim/device/check_launch.h"

namespace nanwatch::device {

inline constexpr int kListMax = 250;  // entries of one launch; kListWords has a bit for each
static_assert(kListMax <= 32 * kListWords);

// `numel` elements side by side from `data` on.
struct ListEntry {
  uint64_t data;            // device address, as of DeviceTensor
  uint64_t numel_and_type;  // elements in the low 56 bits, wire::ElementType above
};
static_assert(sizeof(ListEntry) == 16);

inline constexpr int kEntryTypeShift = 56;
constexpr ListEntry MakeEntry(uint64_t data, uint64_t numel, uint8_t type) noexcept {
  return {data, numel | uint64_t{type} << kEntryTypeShift};
}
constexpr uint64_t NumelOf(const ListEntry& entry) noexcept {
  return entry.numel_and_type & ((uint64_t{1} << kEntryTypeShift) - 1);
}
constexpr uint8_t TypeOf(const ListEntry& entry) noexcept {
  return static_cast<uint8_t>(entry.numel_and_type >> kEntryTypeShift);
}

struct ListLaunch {
  LaunchHead head;  // `output_count` entries are the gate, `input_count` stand behind them
  ListEntry entries[kListMax];
};
static_assert(sizeof(ListLaunch) <= 4096);  // as of ManyLaunch

// Of the gate so many bad entries are counted, and of all so many: the first in the list.
inline constexpr int kGateCountedMax = 8;
inline constexpr int kListCountedMax = 14;

// Whether the squares of such a type's parts are in ListSums::squares. Those of 8 bits are not.
constexpr bool IsSummed(uint8_t type) noexcept {
  return type >= static_cast<uint8_t>(wire::ElementType::kFloat64) &&
         type <= static_cast<uint8_t>(wire::ElementType::kComplex32);
}

// What is always told of a gate that is summed.
struct ListSums {
  // The sum of the squares of all parts (a complex element has two) of the entries whose types are
  // summed: wrong by less than 2^-22 of itself, and by less than 2^-40 where all are float64.
  // Anything where a part is not finite. Not the same bits each time: blocks come in any order.
  double squares;
  // The first part of the first entry, NaN and infinities as they are: the value of a scalar. 0
  // where the entry holds nothing, or its type is not summed.
  double first;
  uint32_t nonzero[kListWords];  // bit i % 32 of word i / 32: entry i holds a part that is not zero

  // True as well of an entry that holds nothing, or nothing that we can read.
  [[nodiscard]] constexpr bool IsZero(uint32_t i) const noexcept {
    return (nonzero[i / 32] >> i % 32 & 1) == 0;
  }
};
static_assert(sizeof(ListSums) == 48);

// Lies where a CheckResult does, and begins as one. Indices of `counts` are places in memory.
// `sums_ticket` and `sums` are written by launches that sum and by no others, and never cleared: a
// ticket is drawn once, so that what an earlier launch has left there answers for that one alone.
struct ListResult {
  uint64_t ticket;
  uint64_t hits;
  uint64_t step;
  uint8_t kinds[16];  // of `counts`, in the same order
  uint64_t brief;
  uint64_t again;
  uint64_t sums_ticket;      // of the launch whose sums these are, written once they are there
  uint32_t bad[kListWords];  // bit i % 32 of word i / 32: entry i holds something non-finite
  uint8_t entry[16];         // which one counts[i] is of, rising
  TensorCounts counts[kListCountedMax];
  ListSums sums;
  uint32_t counted;  // how many of `counts` are filled
  uint32_t unused[3];

  // Of the bad ones, which are not all counted; false for entries that are clean.
  [[nodiscard]] constexpr bool IsBad(uint32_t i) const noexcept {
    return (bad[i / 32] >> i % 32 & 1) != 0;
  }
};
static_assert(sizeof(ListResult) == sizeof(CheckResult));
static_assert(__builtin_offsetof(ListResult, hits) == __builtin_offsetof(CheckResult, hits));
static_assert(__builtin_offsetof(ListResult, step) == __builtin_offsetof(CheckResult, step));
static_assert(__builtin_offsetof(ListResult, brief) == __builtin_offsetof(CheckResult, brief));
static_assert(__builtin_offsetof(ListResult, again) == __builtin_offsetof(CheckResult, again));
static_assert(__builtin_offsetof(ListResult, sums_ticket) ==
              __builtin_offsetof(CheckResult, list_sums_ticket));

// What a slot holds after the launch of a list.
inline ListResult ListOf(const CheckResult& result) noexcept {
  return __builtin_bit_cast(ListResult, result);
}

}  // namespace nanwatch::device
