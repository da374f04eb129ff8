// SPDX-License-Identifier: Apache-2.0
// The user's own lines, each found out once: what an op's record will say of them is needed later,
// when a GPU has answered and the frames are gone.
//
// Threads: any; lookups take no lock. A code object that is freed and whose address is used again
// keeps the lines of the first.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "shim/emit/emitter.h"
#include "shim/observe/python/python_bridge.h"

namespace nanwatch {

struct KnownCall {
  uint32_t call = 0;                 // PythonBridge::UserCall
  const SourceLine* line = nullptr;  // never freed
};

class KnownCalls {
 public:
  // Of the user's innermost frame on this thread; without one, nothing. Where the table is full,
  // new places have no line.
  [[nodiscard]] KnownCall OfThisThread(const PythonBridge& python) noexcept;

 private:
  struct Entry {
    std::atomic<uint64_t> key{0};  // 0: unused; written last
    KnownCall known;
  };
  // Places in a program from which ops are called: hundreds in large ones.
  static constexpr uint32_t kCapacity = 1u << 12;
  static constexpr uint32_t kProbes = 16;

  std::mutex mutex_;  // for additions
  Entry entries_[kCapacity];
};

}  // namespace nanwatch
