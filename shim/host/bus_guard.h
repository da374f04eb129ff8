// SPDX-License-Identifier: Apache-2.0
// Keeps the job alive when somebody cuts the segment's file short under it: the next store to a
// page that is gone would be a SIGBUS. Here the page becomes private memory of zeros, the store is
// repeated and goes through, and the segment is known to be broken until it is made anew.
//
// A signal handler in somebody else's process, so with these rules: it is installed with the first
// mapping; it answers for addresses in our mappings only; every other SIGBUS goes to whatever
// disposition it replaced, and ends the process with the same status where that was the default. A
// program that ignores SIGBUS keeps that, and has no guard.
//
// The handler uses atomics and bare system calls. The rest may be called by any thread.
#pragma once

#include <cstdint>

namespace nanwatch::bus_guard {

inline constexpr int kMappingsMax = 64;

// Guards a mapping for the rest of the process's life. Its number, or -1 when there are too many.
[[nodiscard]] int Guard(const void* begin, uint64_t bytes) noexcept;

// Whether a page of the mapping was missing when it was touched, since the last Mend.
[[nodiscard]] bool IsBroken(int mapping) noexcept;
void Mend(int mapping) noexcept;

// Whether the address lies in a guarded mapping.
[[nodiscard]] bool Covers(const void* address) noexcept;

// Puts the handler in front again where the program has installed one of its own since, which then
// gets all that is not ours. A system call.
void StayInFront() noexcept;

}  // namespace nanwatch::bus_guard
