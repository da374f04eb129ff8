// SPDX-License-Identifier: Apache-2.0
// How the job finds an entry of an append-only table again: a hash index in private memory, beside
// the table in shared memory, so that nothing a reader or an intruder does to the segment can
// mislead the job's own lookups into loops or out of bounds.
//
// Open addressing, at least twice as many places as entries, never removed from, never rebuilt:
// lookups take no lock, and insertion is done under the owner's private mutex.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace nanwatch::wire {

class PrivateIndex {
 public:
  // For up to `entries` entries. Without memory the index has no places: every lookup misses.
  explicit PrivateIndex(uint32_t entries) noexcept {
    size_t places = 16;
    while (places < size_t{entries} * 2) places *= 2;
    places_.reset(new (std::nothrow) std::atomic<uint64_t>[places]());
    mask_ = places - 1;
  }

  [[nodiscard]] bool usable() const noexcept { return places_ != nullptr; }

  // Id of the entry with this hash for which `is_same(id)` holds, or 0. Any thread.
  template <typename IsSame>
  [[nodiscard]] uint32_t Find(uint64_t hash, IsSame&& is_same) const noexcept {
    if (!usable()) return 0;
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const uint64_t place = places_[at].load(std::memory_order_acquire);
      if (place == 0) return 0;
      const auto id = static_cast<uint32_t>(place);
      if ((place & kHashPart) == (hash & kHashPart) && is_same(id)) return id;
    }
  }

  // Publishes an entry that is complete. One thread at a time, at most `entries` times, ids not 0.
  void Add(uint64_t hash, uint32_t id) noexcept {
    size_t at = hash & mask_;
    while (places_[at].load(std::memory_order_relaxed) != 0) at = (at + 1) & mask_;
    places_[at].store((hash & kHashPart) | id, std::memory_order_release);
  }

 private:
  // What a place keeps of the hash; the other half is the id.
  static constexpr uint64_t kHashPart = ~uint64_t{UINT32_MAX};

  std::unique_ptr<std::atomic<uint64_t>[]> places_;  // 0: free
  size_t mask_ = 0;
};

}  // namespace nanwatch::wire
