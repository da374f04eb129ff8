// SPDX-License-Identifier: Apache-2.0
// What ops have left in memory and nobody has looked at, at level layer (cuts.h).
//
// One entry for each output: where it lies, held weakly, and everything that must be told of it if
// it turns out bad later (Moment, as for what a GPU answers late). Each thread has a ring of its
// own, so that noting waits for nobody; the moments' times put the rings in one order.
//
// An entry is *known* once its values were looked at. One that is not, and whose memory is gone or
// was written again, can never be known: whatever reads it may have its bad values from there.
//
// Threads: a ring is written by its own thread; those who walk all of them take its mutex, which
// the owner then finds taken. Nothing is allocated once a ring is mapped.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "shim/observe/thread/location.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

struct WrittenValue {
  InputSeen seen;  // holds the storage weakly until it is seen to be gone: no handle then
  Moment moment;
  const OpTraits* op;
  int64_t sequence;    // Frame's
  uint64_t gone_by;    // by this time its memory was gone; 0: not seen to be
  uint32_t iteration;  // StepScope's
  bool known;
  bool is_leaf;  // the gradient of a leaf, which is looked at where its optimizer takes it

  [[nodiscard]] bool IsHeld() const noexcept { return seen.storage.handle != nullptr; }
  // Lets go of the storage.
  void Drop() noexcept;
};

struct WrittenRing {
  // More large outputs than a step of BERT-base leaves (some 1,500); half a kilobyte each.
  static constexpr uint32_t kKept = 1u << 13;

  // Null: no memory.
  static WrittenRing* Map() noexcept;

  // With `mutex` held, all of these.
  [[nodiscard]] WrittenValue& At(uint64_t number) noexcept { return values[number % kKept]; }
  [[nodiscard]] uint64_t first() const noexcept { return count > kKept ? count - kKept : 0; }
  // The entry of the next value, whatever was in it let go.
  [[nodiscard]] WrittenValue& Next(uint64_t now_ns) noexcept;
  // The newest of the last `among` entries that has this memory; null: none.
  [[nodiscard]] WrittenValue* FindNewest(const PlainTensor& tensor, uint32_t among) noexcept;
  // Lets go of what has died among the values of the last two windows, of which one ends now.
  void EndWindow(uint64_t now_ns) noexcept;
  // The same among all.
  void SweepAll(uint64_t now_ns) noexcept;

  std::mutex mutex;
  WrittenRing* next;        // all rings ever made
  uint64_t count;           // values ever noted
  uint64_t window_begin;    // number of the first value of the window that is open
  uint64_t swept_from;      // and of the one before
  uint64_t backward_begin;  // of the first value that no node's end has met
  // The iteration (plus one) of the newest value that left the ring alive and not known.
  uint32_t lost_iteration;
  WrittenValue values[kKept];

 private:
  void Sweep(uint64_t from, uint64_t now_ns) noexcept;
};

}  // namespace nanwatch
