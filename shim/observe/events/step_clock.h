// SPDX-License-Identifier: Apache-2.0
// How far the training is: what every record is stamped with.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"

namespace nanwatch {

class StepClock {
 public:
  // Any thread.
  [[nodiscard]] virtual wire::Clocks Now() noexcept = 0;

 protected:
  ~StepClock() = default;
};

}  // namespace nanwatch
