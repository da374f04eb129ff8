// SPDX-License-Identifier: Apache-2.0
// What a thread of this process is at, as the system has it.
#pragma once

namespace nanwatch {

// The calling thread's number, as in /proc/self/task.
[[nodiscard]] int NumberOfThisThread() noexcept;

// Whether a thread computes, or waits for nothing but a processor or a disk. False: it waits for
// something else, such as a lock, or there is none of this number. Reads a file, some 10 us; any
// thread, allocates nothing.
[[nodiscard]] bool CanGoOn(int thread) noexcept;

}  // namespace nanwatch
