// SPDX-License-Identifier: Apache-2.0
// What ops have left in memory and nobody has read in full: at level sampled, large results of which
// a part was read and found clean.
//
// One entry for each: where it lies, held weakly, and everything that a record says of its op. An
// entry stands until its memory is written again by an op whose result is recorded here, too, until
// all are taken to be read, or until its place is needed. Entries lie in the order of writing.
//
// Threads: any; one mutex, held for some hundred nanoseconds at a large result. Memory is mapped at
// the first, and nothing is allocated after, but by Take.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "proto/wire/record.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

struct SampledValue {
  InputSeen seen;  // its storage is held weakly, and given back by Drop
  Moment moment;
  wire::Clocks clocks;
  const OpTraits* op;
  int64_t sequence;  // Frame's
  uint64_t call;     // ops that its thread had seen: the same for all results of one op

  [[nodiscard]] bool IsOfSameCall(const SampledValue& other) const noexcept {
    return call == other.call && op == other.op && moment.thread == other.moment.thread;
  }
  // Lets go of the storage.
  void Drop() noexcept;
};

class SampledValues {
 public:
  // Large results of some steps of a small model, or of a part of a large one's step.
  static constexpr uint32_t kKept = 1024;

  ~SampledValues();

  // Adds one, whose storage is held for this object. What it has written over is dropped. The
  // oldest makes room for it: true, and it is in `oldest`, if it was still there. `added` false:
  // there is no memory; nothing was taken over.
  bool Add(const SampledValue& value, SampledValue* oldest, bool* added) noexcept;

  // All of them, oldest first, which are the caller's from here on. May throw std::bad_alloc, and
  // has taken nothing then.
  [[nodiscard]] std::vector<SampledValue> Take();
  // Lets go of all.
  void Clear() noexcept;

  // Whether there may be any.
  [[nodiscard]] bool Any() const noexcept { return any_.load(std::memory_order_relaxed); }

 private:
  struct Table {
    // Of each entry; null: there is none. By itself, so that it is read quickly.
    const void* storages[kKept];
    SampledValue values[kKept];
  };
  [[nodiscard]] bool Map() noexcept;
  void DropOverwritten(const InputSeen& by) noexcept;

  std::mutex mutex_;  // covers all below
  Table* table_ = nullptr;
  uint64_t count_ = 0;  // ever added
  std::atomic<bool> any_{false};
};

}  // namespace nanwatch
