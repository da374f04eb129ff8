// SPDX-License-Identifier: Apache-2.0
// How far the training is: what every record is stamped with.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"

namespace nanwatch {

// Threads: any.
class StepClock {
 public:
  [[nodiscard]] virtual wire::Clocks Now() noexcept = 0;
  // RecordHeader::root_is_older.
  [[nodiscard]] virtual bool IsNewestRootOlder() noexcept = 0;
  // RecordHeader::threads_train.
  [[nodiscard]] virtual bool ThreadsTrain() const noexcept = 0;
  // Completed steps of any kind.
  [[nodiscard]] virtual uint32_t completed() noexcept = 0;
  // Number of the open (or last) optimizer range, from 1.
  [[nodiscard]] virtual uint32_t range() const noexcept = 0;

 protected:
  ~StepClock() = default;
};

}  // namespace nanwatch
