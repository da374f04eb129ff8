// SPDX-License-Identifier: Apache-2.0
// Weak holds on storages that are no libtorch's but numbers, and how many of them were taken and
// let go. One test's thread.
#pragma once

#include <cstdint>

namespace nanwatch {

inline const void* StorageNumbered(uint64_t number) {
  return reinterpret_cast<const void*>(number << 12);
}
int HoldsTaken();
int HoldsDropped();

}  // namespace nanwatch
