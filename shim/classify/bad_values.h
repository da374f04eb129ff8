// SPDX-License-Identifier: Apache-2.0
// Where bad values lie in memory right now: one entry per (storage, extent), with the value it
// holds.
//
// A pointer alone is no identity: storages are reused within microseconds. Each entry keeps a weak
// handle of its storage, so that the storage's address cannot come back while the entry stands, and
// an entry whose storage has died is dropped when it is met.
//
// An entry is *transient* (an activation, a gradient) or *resident*: known to be bad for longer
// than a step, such as a mask kept in a buffer. Only transient entries are a reason to ask ops for
// their inputs.
//
// Where values are told of later than they were made (a GPU's), an entry whose storage has died
// stands until everything is told that was noted before its death was seen: what read the memory
// while it lived is told by then.
//
// Threads: every function locks the table's own mutex. It is only touched while something bad is
// alive.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>
#include <vector>

#include "proto/wire/record.h"

namespace nanwatch {

// A value by its ticket (its id on the wire) and its place among the recent values of this process.
struct ValueRef {
  uint64_t ticket = 0;
  uint64_t index = 0;
};

// A weak handle of a storage, behind two functions, because this folder knows nothing of torch.
struct WeakStorage {
  const void* storage = nullptr;  // address, as identity
  void* handle = nullptr;
};
struct WeakStorageOps {
  bool (*expired)(void* handle) noexcept;
  void (*drop)(void* handle) noexcept;
};

// How many events were noted so far, and how many of them have been told. Numbers begin at 1.
struct EventClock {
  std::atomic<uint64_t> noted{0};
  std::atomic<uint64_t> told{0};

  // Whether all is told that was noted before this was first asked of `*since`, which begins at 0.
  [[nodiscard]] bool HasCaughtUp(uint64_t* since) const noexcept {
    if (*since == 0) *since = noted.load(std::memory_order_acquire) + 1;
    return told.load(std::memory_order_acquire) + 1 >= *since;
  }
};

struct BadEntry {
  WeakStorage storage;
  uint64_t byte_begin = 0;
  uint64_t byte_end = 0;
  bool dense =
      true;  // every byte between belongs to it; columns of a matrix have those of others between
  ValueRef value;
  uint32_t site = 0;  // 0: external, no op is known to have written it
  uint32_t name = 0;  // name id of the parameter, buffer or argument
  wire::Target target = wire::Target::kNone;
  uint64_t shared_file = 0;    // of an external one: as in wire::Source::value
  bool writer_unseen = false;  // the same: wire::Source::kWriterUnseen
  uint32_t born_step = 0;      // completed steps when it was entered
  uint32_t born_range = 0;     // number of the optimizer range it was written in, 0 none
  uint64_t elements = 0;       // how many elements are bad, where it was counted; 0 unknown
  uint8_t kinds = 0;           // kHasNan...; of all with `elements`. 0 unknown
  bool resident = false;
  uint32_t next = 0;     // index + 1 of the next older entry of the same bucket
  uint32_t used_at = 0;  // place in the list of used entries
  uint64_t gone_by = 0;  // the event after which it is dropped, plus one; 0: its storage lives

  [[nodiscard]] bool IsExternal() const noexcept { return site == 0 && value.ticket == 0; }
};

class BadValues {
 public:
  // Without a clock everything is told at once. It must outlive this object.
  explicit BadValues(WeakStorageOps ops, const EventClock* clock = nullptr) noexcept
      : ops_(ops), clock_(clock) {}

  // Takes over `entry.storage.handle`. Entries of the same storage that it covers are replaced.
  // False when the table is full; the handle is dropped then.
  bool Add(const BadEntry& entry) noexcept;

  // The newest entry that overlaps [byte_begin, byte_end) of the storage; of columns that lie
  // between each other the very one.
  bool Find(const void* storage, uint64_t byte_begin, uint64_t byte_end, BadEntry* found) noexcept;

  // The newest of them that holds such a value (kHasNan...), as far as that is known of each.
  bool FindKind(const void* storage, uint64_t byte_begin, uint64_t byte_end, uint8_t kind,
                BadEntry* found) noexcept;
  // How many elements of [byte_begin, byte_end) are known to be bad, and of which kinds; 0: that was
  // not counted, some reach beyond it, or they overlap.
  uint64_t CountWithin(const void* storage, uint64_t byte_begin, uint64_t byte_end,
                       uint8_t* kinds) noexcept;

  // A clean write to [byte_begin, byte_end): entries that lie inside are gone. Of a write that is
  // not dense only the entry of the same extent that is not dense either: others may lie in its
  // gaps.
  void Clear(const void* storage, uint64_t byte_begin, uint64_t byte_end, bool dense) noexcept;

  // Drops entries whose storage has died, looking at `budget` entries at most; 0: all of them.
  void Sweep(uint32_t budget) noexcept;

  // Makes entries older than `steps` steps resident.
  void Settle(uint32_t now_step, uint32_t steps) noexcept;

  // Calls fn(context, entry) for each entry whose storage lives, under the lock: fn must not call
  // back.
  void ForEach(void (*fn)(void* context, const BadEntry& entry), void* context) noexcept;

  void Reset() noexcept;

  // Without the lock: whether an entry was ever turned away because the table was full.
  bool lost() const noexcept { return lost_.load(std::memory_order_relaxed); }
  // Without the lock: a recent count.
  uint32_t transient() const noexcept { return transient_.load(std::memory_order_relaxed); }
  uint32_t size() const noexcept { return size_.load(std::memory_order_relaxed); }

  static constexpr uint32_t kEntriesMax = 8192;

 private:
  static constexpr uint32_t kBuckets = 4096;
  // Fibonacci hashing: the top bits of a product with 2^32 / golden ratio, as many as number a
  // bucket. The low bits of an address are those of its alignment.
  static uint32_t Bucket(const void* storage) noexcept {
    static_assert(std::has_single_bit(kBuckets));
    constexpr int kAlignmentBits = 4;
    constexpr int kTopBits = 32 - std::countr_zero(kBuckets);
    const auto place =
        static_cast<uint32_t>(reinterpret_cast<uintptr_t>(storage) >> kAlignmentBits);
    return (place * 0x9E3779B1u) >> kTopBits;
  }
  void Unlink(uint32_t* link) noexcept;
  bool IsGone(BadEntry& entry) const noexcept;
  void Prepare() noexcept;
  bool TurnAway(const BadEntry& entry) noexcept;

  WeakStorageOps ops_;
  const EventClock* clock_;
  std::mutex mutex_;
  std::vector<BadEntry> entries_;  // sized once, on first use
  std::vector<uint32_t> buckets_;  // index + 1 of the newest entry, 0 none
  uint32_t free_ = 0;              // index + 1 of the first free entry
  std::vector<uint32_t> used_;     // index + 1 of every used entry, in no order
  uint32_t sweep_at_ = 0;
  std::atomic<uint32_t> transient_{0};
  std::atomic<uint32_t> size_{0};
  std::atomic<bool> lost_{false};
};

}  // namespace nanwatch
