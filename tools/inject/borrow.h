// SPDX-License-Identifier: Apache-2.0
// Borrows a thread for some instructions of ours (the payload's `borrowed` entry), by ptrace.
//
// Only a thread that runs in user mode is borrowed, never one in a system call, which would be
// interrupted: some calls cannot be restarted (epoll_wait). One register is written, the program
// counter, and the thread is let go at once; the payload saves and restores the rest by itself,
// vector registers included, and goes on where it was. No request reads or writes those through the
// kernel.
//
// The thread is stopped between the first request and the last. When this process is killed in
// between, the kernel lets it go.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace nanwatch {

// What this processor needs for it; 0 bytes: an older one, without xsave.
struct BorrowNeeds {
  bool possible = false;  // else this processor has no such entry
  uint32_t xsave_bytes = 0;
};
[[nodiscard]] BorrowNeeds ReadBorrowNeeds();

enum class Borrowed {
  kYes,
  kNotNow,  // it is in a system call, or in a restartable sequence; nothing was changed
  kNever,   // the kernel refuses (`refusal`)
};

struct BorrowResult {
  Borrowed borrowed = Borrowed::kNotNow;
  std::chrono::nanoseconds stopped{0};
  int refusal = 0;  // errno
};

// `prepare(pc, sp)` runs while the thread stands: it writes down where the thread is to go on, and
// says whether its stack has space. The thread then runs from `entry`.
[[nodiscard]] BorrowResult BorrowThread(
    int thread, uint64_t entry, const std::function<bool(uint64_t pc, uint64_t sp)>& prepare);

}  // namespace nanwatch
