// SPDX-License-Identifier: Apache-2.0
// The site table: the places that bad values come from, with a count each, so that totals survive
// when records are dropped. Append-only and bounded: when it is full, further places are site 0 and
// counted by the caller.
//
//   SiteTableHeader | SiteEntry[capacity]
//
// Entry id - 1 is published by its state, kEntryComplete, stored with release after what describes the place.
// Counters go on changing. A job that dies in between leaves another state: no entry.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <optional>

#include "proto/wire/hash.h"
#include "proto/wire/private_index.h"
#include "proto/wire/section_room.h"
#include "proto/wire/segment.h"
#include "proto/wire/shared_words.h"

namespace nanwatch::wire {

constexpr size_t SiteTableBytes(uint32_t sites) {
  return sizeof(SiteTableHeader) + sites * sizeof(SiteEntry);
}

// What identifies a site: everything but layer_type, which follows from the layer. Numbers are name
// ids.
struct SiteKey {
  uint32_t op = 0;
  uint32_t layer = 0;
  uint32_t layer_type = 0;
  uint32_t root = 0;
  uint32_t node = 0;
  uint32_t flags = 0;  // ValueRecord::Flag bits that belong to the place
  uint32_t param = 0;
  uint32_t call =
      0;  // identity of the user's call, the job's own: not in the table, which has its line
  Phase phase = Phase::kOther;
  FindingClass finding_class = FindingClass::kUnknown;
  uint8_t kinds = 0;    // kHasNan...
  uint8_t outputs = 0;  // bit i: output i was bad

  [[nodiscard]] bool IsSamePlace(const SiteKey& other) const noexcept {
    SiteKey key = *this;
    key.layer_type = other.layer_type;
    return key == other;
  }
  friend bool operator==(const SiteKey&, const SiteKey&) = default;
};
static_assert(sizeof(SiteKey) == 36, "no padding: it is hashed as bytes");

// The job's half. Any thread: a place seen before costs a hash and a comparison, a new one a
// private mutex. Does not own the section, which must be zero.
class SiteWriter {
 public:
  // `room` is that of the entries, nullptr where all have pages.
  SiteWriter(SiteTableHeader* header, uint32_t capacity, SectionRoom* room = nullptr) noexcept
      : header_(header),
        entries_(reinterpret_cast<SiteEntry*>(header + 1)),
        capacity_(capacity),
        index_(capacity),
        keys_(new (std::nothrow) SiteKey[capacity]),
        totals_(static_cast<Total*>(std::calloc(capacity, sizeof(Total)))),
        room_(room) {
    header_->capacity = capacity;
  }

  // The id of `key`; 0 when the table is full. `make_source()` gives the name id of the place's
  // source line; it is called only for a place not seen before, outside the mutex (it may intern,
  // and take its time): two threads that meet the same new place may both call it, and one result
  // is used. `*is_new` is true for the one call that made the entry.
  template <typename MakeSource>
  [[nodiscard]] uint32_t Intern(const SiteKey& key, MakeSource&& make_source,
                                bool* is_new) noexcept {
    *is_new = false;
    if (!index_.usable() || keys_ == nullptr || totals_ == nullptr) return 0;
    SiteKey hashed = key;
    hashed.layer_type = 0;
    const uint64_t hash = HashBytes(&hashed, sizeof hashed);
    const auto is_same = [&](uint32_t id) { return keys_[id - 1].IsSamePlace(key); };
    if (const uint32_t id = index_.Find(hash, is_same)) return id;
    if (!HasPlace()) return 0;
    const uint32_t source = make_source();
    const std::lock_guard lock(mutex_);
    if (const uint32_t id = index_.Find(hash, is_same)) return id;
    if (!HasPlace()) return 0;
    const uint32_t id = Append(key, source);
    index_.Add(hash, id);
    *is_new = true;
    return id;
  }

  // Adds one to the site's count and gives the new count; 0 for site 0.
  uint64_t Count(uint32_t site, uint64_t ticket, const Clocks& clocks) noexcept {
    if (site == 0 || site > count_.load(std::memory_order_acquire)) return 0;
    SiteEntry& entry = entries_[site - 1];
    Total& total = totals_[site - 1];
    const uint64_t count =
        std::atomic_ref<uint64_t>(total.count).fetch_add(1, std::memory_order_relaxed) + 1;
    entry.count.fetch_add(1, std::memory_order_relaxed);
    if (count == 1) {
      total.first_clocks = clocks;
      total.first_ticket = ticket;
      StoreWords(&entry.first_clocks, &clocks, sizeof clocks);
      entry.first_ticket.store(ticket, std::memory_order_release);
    }
    StoreWords(&entry.last_clocks, &clocks, sizeof clocks);
    entry.last_ticket.store(ticket, std::memory_order_release);
    return count;
  }

  // The key behind an id that Intern gave; nullptr for any other.
  [[nodiscard]] const SiteKey* Key(uint32_t site) const noexcept {
    return site == 0 || site > capacity_ || keys_ == nullptr ? nullptr : &keys_[site - 1];
  }

  // After the section's content was lost and its memory zeroed: writes every place again under its
  // number, with its total and its first moment. No other thread is inside.
  void Restore() noexcept {
    header_->capacity = capacity_;
    const uint32_t count = count_.load(std::memory_order_relaxed);
    for (uint32_t at = 0; at < count; ++at) {
      SiteEntry& entry = entries_[at];
      const Total& total = totals_[at];
      entry.count.store(total.count, std::memory_order_relaxed);
      StoreWords(&entry.first_clocks, &total.first_clocks, sizeof(Clocks));
      StoreWords(&entry.last_clocks, &total.first_clocks, sizeof(Clocks));
      entry.first_ticket.store(total.first_ticket, std::memory_order_relaxed);
      entry.last_ticket.store(total.first_ticket, std::memory_order_relaxed);
      Describe(entry, keys_[at], total.source);
    }
    header_->used.store(count, std::memory_order_release);
  }

 private:
  // What Restore needs of an entry; the rest is in its key. Zeroed memory that the kernel makes as
  // it is touched.
  struct Total {
    uint64_t count;  // by atomic_ref
    uint64_t first_ticket;
    Clocks first_clocks;
    uint32_t source;
  };
  struct Free {
    void operator()(Total* totals) const noexcept { std::free(totals); }
  };

  bool HasPlace() noexcept {
    const uint32_t count = count_.load(std::memory_order_relaxed);
    if (count == capacity_) return false;
    return room_ == nullptr || room_->Has((uint64_t{count} + 1) * sizeof(SiteEntry));
  }

  uint32_t Append(const SiteKey& key, uint32_t source) noexcept {
    const uint32_t at = count_.load(std::memory_order_relaxed);
    keys_[at] = key;
    totals_[at].source = source;
    Describe(entries_[at], key, source);
    header_->used.store(at + 1, std::memory_order_release);
    count_.store(at + 1, std::memory_order_release);
    return at + 1;
  }

  static void Describe(SiteEntry& entry, const SiteKey& key, uint32_t source) noexcept {
    entry.state.store(kEntryBeingWritten, std::memory_order_relaxed);
    entry.op = key.op;
    entry.layer = key.layer;
    entry.layer_type = key.layer_type;
    entry.root = key.root;
    entry.node = key.node;
    entry.source = source;
    entry.phase = static_cast<uint8_t>(key.phase);
    entry.finding_class = static_cast<uint8_t>(key.finding_class);
    entry.kinds = key.kinds;
    entry.outputs = key.outputs;
    entry.flags = key.flags;
    entry.param = key.param;
    entry.state.store(kEntryComplete, std::memory_order_release);
  }

  SiteTableHeader* header_;
  SiteEntry* entries_;
  uint32_t capacity_;
  std::mutex mutex_;
  std::atomic<uint32_t> count_{0};  // as header_->used, where nobody else can write
  PrivateIndex index_;
  std::unique_ptr<SiteKey[]> keys_;
  std::unique_ptr<Total[], Free> totals_;  // what the entries say, likewise
  SectionRoom* room_;
};

// A private copy of one entry. Nothing in it is validated but that it was complete.
struct Site {
  SiteKey key;          // its enumerators may hold anything
  uint32_t source = 0;  // name id
  uint64_t count = 0;
  uint64_t first_ticket = 0;  // 0: nothing counted yet, first_clocks void
  uint64_t last_ticket = 0;
  Clocks first_clocks{};
  Clocks last_clocks{};  // a hint: it may be of two moments
};

// The daemon's half. Reads only; any thread.
class SiteReader {
 public:
  // Nothing if the header does not fit into the section's `size` bytes, which the caller has
  // checked against the file.
  [[nodiscard]] static std::optional<SiteReader> Open(const void* section, size_t size) noexcept {
    if (size < sizeof(SiteTableHeader)) return {};
    const auto* header = static_cast<const SiteTableHeader*>(section);
    uint64_t word = 0;  // used, capacity
    LoadWords(&word, header, sizeof word);
    static_assert(offsetof(SiteTableHeader, capacity) == SecondHalfOf(0));
    const uint32_t capacity = SecondHalf(word);
    if (capacity > (size - sizeof(SiteTableHeader)) / sizeof(SiteEntry)) return {};
    return SiteReader(header, capacity);
  }

  // How many ids have been handed out, at most the capacity.
  [[nodiscard]] uint32_t Count() const noexcept {
    const uint32_t used = header_->used.load(std::memory_order_acquire);
    return used < capacity_ ? used : capacity_;
  }

  // A copy of site `id`; nothing for 0, unknown ids and entries that are not complete.
  [[nodiscard]] std::optional<Site> Get(uint32_t id) const noexcept {
    if (id == 0 || id > capacity_) return {};
    const SiteEntry& entry = entries_[id - 1];
    if (entry.state.load(std::memory_order_acquire) != kEntryComplete) return {};
    struct Fixed {  // the first 40 bytes of SiteEntry
      uint32_t state, op, layer, layer_type, root, node, source;
      uint8_t phase, finding_class, kinds, outputs;
      uint32_t flags, param;
    } fixed;
    static_assert(sizeof fixed == offsetof(SiteEntry, count));
    LoadWords(&fixed, &entry, sizeof fixed);
    Site site;
    site.key = {.op = fixed.op,
                .layer = fixed.layer,
                .layer_type = fixed.layer_type,
                .root = fixed.root,
                .node = fixed.node,
                .flags = fixed.flags,
                .param = fixed.param,
                .phase = static_cast<Phase>(fixed.phase),
                .finding_class = static_cast<FindingClass>(fixed.finding_class),
                .kinds = fixed.kinds,
                .outputs = fixed.outputs};
    site.source = fixed.source;
    site.last_ticket = entry.last_ticket.load(std::memory_order_acquire);
    site.first_ticket = entry.first_ticket.load(std::memory_order_acquire);
    site.count = entry.count.load(std::memory_order_relaxed);
    LoadWords(&site.first_clocks, &entry.first_clocks, sizeof(Clocks));
    LoadWords(&site.last_clocks, &entry.last_clocks, sizeof(Clocks));
    return site;
  }

 private:
  SiteReader(const SiteTableHeader* header, uint32_t capacity) noexcept
      : header_(header),
        entries_(reinterpret_cast<const SiteEntry*>(header + 1)),
        capacity_(capacity) {}

  const SiteTableHeader* header_;
  const SiteEntry* entries_;
  uint32_t capacity_;
};

}  // namespace nanwatch::wire
