// SPDX-License-Identifier: Apache-2.0
// A wait that ends: for a lock or an answer that may never be had, as one that a thread held when
// the process was forked.
//
// A machine that is busy, or stands still for a moment, must not look like that. So time alone does
// not end a wait: it was asked often, too, and a thread that is known to be able to go on is waited
// for longer.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

#include "shim/host/monotonic_clock.h"
#include "shim/host/thread_work.h"

namespace nanwatch {

// Asks `done()` at once, then every 0.1 ms until it says yes: for so long, and at least twice a
// millisecond. Whether it did.
template <class Done>
[[nodiscard]] bool DoneWithin(int milliseconds, Done done) noexcept {
  if (done()) return true;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 100 * 1000};
  const uint64_t until = MonotonicNs() + static_cast<uint64_t>(milliseconds) * 1'000'000;
  for (int asked = 0; asked < 2 * milliseconds || MonotonicNs() < until; ++asked) {
    nanosleep(&kPause, nullptr);
    if (done()) return true;
  }
  return false;
}

// The same of what a thread of this process is to do, by its number; 0: none is known. While it can
// go on by itself it is waited for, some 40 times as long.
template <class Done>
[[nodiscard]] bool DoneByThread(int milliseconds, const std::atomic<int>& thread,
                                Done done) noexcept {
  constexpr int kRounds = 40;
  for (int round = 0; round < kRounds; ++round) {
    if (DoneWithin(milliseconds, done)) return true;
    if (!CanGoOn(thread.load(std::memory_order_acquire))) return false;
  }
  return false;
}

}  // namespace nanwatch
