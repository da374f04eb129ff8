// SPDX-License-Identifier: Apache-2.0
// A wait that ends: for a lock or an answer that may never be had, as one that a thread held when
// the process was forked.
#pragma once

#include <time.h>

#include <cstdint>

#include "shim/host/monotonic_clock.h"

namespace nanwatch {

// Asks `done()` at once, then every 0.1 ms until it says yes, for so long at most. Whether it did.
template <class Done>
[[nodiscard]] bool DoneWithin(int milliseconds, Done done) noexcept {
  if (done()) return true;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 100 * 1000};
  const uint64_t until = MonotonicNs() + static_cast<uint64_t>(milliseconds) * 1'000'000;
  while (MonotonicNs() < until) {
    nanosleep(&kPause, nullptr);
    if (done()) return true;
  }
  return false;
}

}  // namespace nanwatch
