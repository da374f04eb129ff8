// SPDX-License-Identifier: Apache-2.0
// Large tables that are mostly not used: pages are taken when they are first written, and none is
// reserved. Given back with munmap, or with the process.
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace nanwatch {

// Zeroed memory of at least `bytes` bytes, on a page of its own; null: there is none. `sharing`:
// MAP_PRIVATE, or MAP_SHARED, which a fork leaves where it is.
inline void* MapZeroed(size_t bytes, int sharing = MAP_PRIVATE) noexcept {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace nanwatch
