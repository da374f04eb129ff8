// SPDX-License-Identifier: Apache-2.0
// The clock of all times in a segment: CLOCK_MONOTONIC, which processes of one boot share.
#pragma once

#include <time.h>

#include <cstdint>

namespace nanwatch {

// Nanoseconds. Goes through the vDSO: no system call where the kernel offers it.
[[nodiscard]] inline uint64_t MonotonicNs() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace nanwatch
