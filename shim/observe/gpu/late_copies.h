// SPDX-License-Identifier: Apache-2.0
// Where copies from a GPU have written to the CPU's memory that nobody waited for. Until the
// program has waited, which we do not see, that memory holds what was there before; a launch that
// reads it behind the copy is right all the same. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class LateCopies {
 public:
  // A copy into this memory was noted as event `number`.
  void Add(const InputSeen& to, uint64_t number) noexcept;
  // Whether one may not have arrived yet, where the next event is `number`.
  [[nodiscard]] bool MayBeUnderWay(const PlainTensor& read, uint64_t number) noexcept;

 private:
  // The driver's queues hold about a thousand launches, and an op is one event or more.
  static constexpr uint64_t kEventsUnderWay = 8192;
  // Of more than so many the oldest are taken to have arrived.
  static constexpr uint32_t kKept = 256;

  struct Copy {
    WeakStorage storage;  // so that the address stands for no other
    uint64_t byte_begin;
    uint64_t byte_end;
    uint64_t number;
  };

  std::atomic<uint64_t> newest_{0};  // number of the last one; 0: there was none
  std::mutex mutex_;                 // covers all below
  Copy copies_[kKept] = {};
  uint32_t next_ = 0;
};

}  // namespace nanwatch
