// SPDX-License-Identifier: Apache-2.0
// Threads of our own in the program's process. Its signals are for threads of its own: one that is
// delivered to ours would interrupt nothing of the program's, and run its handler where it expects
// none. Signals of a thread's own faults stay open: the guard of the segment answers one of them
// (bus_guard.h).
#pragma once

#include <signal.h>

namespace nanwatch {

// While it lives, threads that the calling one starts take no signals of the program.
class QuietSignals {
 public:
  QuietSignals() noexcept;
  ~QuietSignals();
  QuietSignals(const QuietSignals&) = delete;
  QuietSignals& operator=(const QuietSignals&) = delete;

 private:
  sigset_t before_;
};

// Starts such a thread, which nobody joins. False: the system makes none.
[[nodiscard]] bool StartQuietThread(void* (*run)(void* context), void* context) noexcept;

}  // namespace nanwatch
