// SPDX-License-Identifier: Apache-2.0
// Whether the observer is on in this process. The flag lies in a page that the kernel zeroes in a
// forked child (shim/README.md), so a child is silent until it is woken.
#pragma once

#include <cstdint>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class Activity {
 public:
  explicit Activity(volatile uint32_t* flag) noexcept : flag_(flag) {}

  // False in a forked child that has run no op yet, and after stepping down.
  [[nodiscard]] bool On() const noexcept { return *flag_ != 0; }
  void Set(bool on) noexcept { *flag_ = on ? 1 : 0; }

  // The calling thread's state, if the observer is on and the thread is not inside our own code;
  // else null.
  [[nodiscard]] ThreadState* ThisThread() const noexcept {
    if (__builtin_expect(!On(), 0)) return nullptr;
    ThreadState* thread = ThreadStates::Mine();
    return __builtin_expect(thread != nullptr && !thread->busy, 1) ? thread : nullptr;
  }

 private:
  volatile uint32_t* const flag_;
};

}  // namespace nanwatch
