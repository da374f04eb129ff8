// SPDX-License-Identifier: Apache-2.0
// The last NaN that Python has read from a tensor as a number: by item(), float(), a format string.
// It may come back without a trace: as the number of an op (a rate, a weight of the loss), or in a
// tensor that is built of numbers. The finding there names the value that was read as its source,
// and is not exact: that it is the same number is a guess.
//
// For some steps after such a read the inputs of ops are asked for, so that an op that is given a
// bad number is told from one that makes a bad value of finite ones.
//
// Threads: HasAny is a load; the rest locks, and is not called for clean ops.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "proto/wire/record.h"
#include "shim/classify/bad_values.h"

namespace nanwatch {

class InputTracking;
class StepClock;
struct BadOutput;
struct Frame;

class ReadNumbers {
 public:
  // Both outlive it.
  ReadNumbers(StepClock& clock, InputTracking& tracking) noexcept
      : clock_(clock), tracking_(tracking) {}

  // Python has read `number`, which is not finite, from the value that `source` names.
  void OnRead(const wire::Source& source, ValueRef value, double number) noexcept;
  // So many steps are complete.
  void OnStep(uint32_t completed) noexcept;

  // Python has read a NaN.
  [[nodiscard]] bool HasAny() const noexcept { return any_.load(std::memory_order_relaxed); }
  // The value that the last NaN was read from; false: there is none, or nothing is known of it.
  [[nodiscard]] bool FindLast(wire::Source* source, ValueRef* value) noexcept;
  // Whether the op makes a tensor of Python's numbers, of which the last NaN that was read may be
  // one. A batch has more dimensions, and a NaN that stands in a data set has mostly another sign
  // than one that the processor has made.
  [[nodiscard]] bool MayBeIn(const Frame& frame, const BadOutput& output) noexcept;

 private:
  static constexpr uint32_t kStepsFollowed = 64;

  StepClock& clock_;
  InputTracking& tracking_;
  std::atomic<bool> any_{false};
  std::mutex mutex_;  // covers all below
  wire::Source source_{};
  ValueRef value_{};
  bool negative_ = false;
  bool holds_inputs_ = false;
  uint32_t follow_until_ = 0;  // completed steps
};

}  // namespace nanwatch
