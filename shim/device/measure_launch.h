// SPDX-License-Identifier: Apache-2.0
// What launches of nanwatch_measure_list (measure_list.h) and nanwatch_compare_list
// (compare_list.h) are told and what they answer: of each tensor of a list what its elements are
// like together, and how a sample of it differs from what it was, as check/moments.h says it of one
// on the CPU.
//
// The first is told a ListLaunch of a gate alone, kMeasuredMax entries at most, whose scratch is a
// MeasureScratch. It looks for nothing bad and answers always: all of `measures`, then
// `measures_ticket`, then *progress where the launch has it.
//
// The second is told as many entries behind the gate as there are in it, of float64: where in the
// device's memory the sample of each is kept. It answers the same way: `squares` is that of the
// change, `sum` the squares of what was there before, and the rest is 0.
#pragma once

#include <cstdint>

#include "shim/device/list_launch.h"

namespace nanwatch::device {

inline constexpr int kMeasuredMax = 28;  // as many as fit a slot

// Of other types all is 0.
constexpr bool IsMeasured(uint8_t type) noexcept {
  using enum wire::ElementType;
  const auto element = static_cast<wire::ElementType>(type);
  return element == kFloat64 || element == kFloat32 || element == kFloat16 || element == kBFloat16;
}

// A place in the memory that a device has for samples, in doubles.
struct SampleSpan {
  uint32_t begin;
  uint32_t count;
};
inline constexpr uint32_t kSampleDoubles = 1u << 17;  // 1 MiB

// Of one entry. Each element is made a double before it is added, so that the sums are wrong by
// what doubles lose: not the same bits each time, for blocks come in any order.
struct Measure {
  double sum;
  double squares;  // the sum of theirs; infinite where a float64's is
  double largest;  // magnitude, exactly; NaN or infinite where an element is, NaN if one is
  uint64_t zeros;  // elements that are zero, of either sign

  [[nodiscard]] constexpr bool IsFinite() const noexcept { return largest < __builtin_inf(); }
};
static_assert(sizeof(Measure) == 32);

// Lies where a CheckResult does. What stands before the ticket is left as it is, and so is what
// stands behind the last entry.
struct MeasureResult {
  uint64_t unused[7];
  uint64_t measures_ticket;
  Measure measures[kMeasuredMax];
};
static_assert(sizeof(MeasureResult) == sizeof(CheckResult));
static_assert(__builtin_offsetof(MeasureResult, measures_ticket) ==
              __builtin_offsetof(CheckResult, list_sums_ticket));

// In the device's own memory, zero between launches, as LaunchScratch: each slot has one.
struct MeasureScratch {
  uint32_t blocks_done;
  uint32_t unused;
  Measure totals[kMeasuredMax];
};
static_assert(sizeof(MeasureScratch) == 904);

}  // namespace nanwatch::device
