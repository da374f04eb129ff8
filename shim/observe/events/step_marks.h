// SPDX-License-Identifier: Apache-2.0
// What every op asks of the steps: one load each. Set by step/, and lies beside the table of ops
// (op/op_path.h).
#pragma once

#include <atomic>
#include <cstdint>

namespace nanwatch {

struct StepMarks {
  // Completed steps, as of the last one that was published.
  std::atomic<uint32_t> iteration{0};
  // A pass has begun, and no optimizer's range has closed it: the next write in place to a parameter
  // may be an update by hand.
  std::atomic<bool> plain_update_due{false};
};

}  // namespace nanwatch
