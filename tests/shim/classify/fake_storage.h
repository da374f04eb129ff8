// SPDX-License-Identifier: Apache-2.0
// A storage of libtorch as BadValues sees it: an address, whether it has died, and how often its
// handle was dropped. One test's thread.
#pragma once

#include <cstdint>

#include "shim/classify/bad_values.h"

namespace nanwatch {

struct FakeStorage {
  bool dead = false;
  int held = 0;     // handles taken
  int dropped = 0;  // handles given back

  // An entry for [begin, end) of this storage that owns a handle of it.
  [[nodiscard]] BadEntry Entry(uint64_t begin, uint64_t end, uint64_t ticket = 1);
  [[nodiscard]] int open() const { return held - dropped; }
};

WeakStorageOps FakeStorageOps();

}  // namespace nanwatch
