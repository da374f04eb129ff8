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

// Asks `done()` at once, then every 0.1 ms until it says yes: for so long, and until it has asked
// twice as often as that is milliseconds, which may take ten times as long. Whether it did.
template <class Done>
[[nodiscard]] bool DoneWithin(int milliseconds, Done done) noexcept {
  if (done()) return true;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 100 * 1000};
  const uint64_t patience = static_cast<uint64_t>(milliseconds) * 1'000'000;
  const uint64_t began = MonotonicNs();
  uint64_t waited = 0;
  for (int asked = 0; waited < patience || (asked < 2 * milliseconds && waited < 10 * patience);
       ++asked) {
    nanosleep(&kPause, nullptr);
    if (done()) return true;
    waited = MonotonicNs() - began;
  }
  return false;
}

// The same of what a thread of this process is to do, by its number; 0: none is known. While it can
// go on by itself it is waited for, 40 times as long at most.
template <class Done>
[[nodiscard]] bool DoneByThread(int milliseconds, const std::atomic<int>& thread,
                                Done done) noexcept {
  constexpr uint64_t kLonger = 40;
  const uint64_t until = MonotonicNs() + kLonger * static_cast<uint64_t>(milliseconds) * 1'000'000;
  do {
    if (DoneWithin(milliseconds, done)) return true;
  } while (CanGoOn(thread.load(std::memory_order_acquire)) && MonotonicNs() < until);
  return false;
}

}  // namespace nanwatch
