// SPDX-License-Identifier: Apache-2.0
#include "shim/classify/bad_values.h"

#include <algorithm>
#include <new>

namespace nanwatch {
namespace {

// A diagonal begins and ends where its matrix does.
bool Covers(uint64_t byte_begin, uint64_t byte_end, bool dense, const BadEntry& entry) noexcept {
  if (dense) return entry.byte_begin >= byte_begin && entry.byte_end <= byte_end;
  return entry.byte_begin == byte_begin && entry.byte_end == byte_end && !entry.dense;
}

bool Overlaps(const BadEntry& entry, const void* storage, uint64_t byte_begin, uint64_t byte_end) {
  return entry.storage.storage == storage && entry.byte_begin < byte_end &&
         byte_begin < entry.byte_end;
}

}  // namespace

void BadValues::Prepare() noexcept {
  if (!entries_.empty()) return;
  try {
    entries_.resize(kEntriesMax);
    buckets_.resize(kBuckets);
    used_.reserve(kEntriesMax);
  } catch (const std::bad_alloc&) {
    entries_.clear();
    return;
  }
  for (uint32_t i = 0; i < kEntriesMax; ++i) entries_[i].next = i + 2;
  entries_[kEntriesMax - 1].next = 0;
  free_ = 1;
}

// `*link` names the entry to take out; it is put on the free list and `*link` moves on to the next.
void BadValues::Unlink(uint32_t* link) noexcept {
  const uint32_t id = *link;
  BadEntry& entry = entries_[id - 1];
  *link = entry.next;
  ops_.drop(entry.storage.handle);
  if (!entry.resident) transient_.fetch_sub(1, std::memory_order_relaxed);
  size_.fetch_sub(1, std::memory_order_relaxed);
  entries_[used_.back() - 1].used_at = entry.used_at;
  used_[entry.used_at] = used_.back();
  used_.pop_back();
  entry = BadEntry{};
  entry.next = free_;
  free_ = id;
}

bool BadValues::IsGone(BadEntry& entry) const noexcept {
  if (!ops_.expired(entry.storage.handle)) return false;
  return clock_ == nullptr || clock_->HasCaughtUp(&entry.gone_by);
}

bool BadValues::TurnAway(const BadEntry& entry) noexcept {
  ops_.drop(entry.storage.handle);
  lost_.store(true, std::memory_order_relaxed);
  return false;
}

bool BadValues::Add(const BadEntry& added) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  Prepare();
  if (entries_.empty()) return TurnAway(added);
  const uint32_t bucket = Bucket(added.storage.storage);
  for (uint32_t* link = &buckets_[bucket]; *link != 0;) {
    BadEntry& entry = entries_[*link - 1];
    const bool covered = entry.storage.storage == added.storage.storage &&
                         Covers(added.byte_begin, added.byte_end, added.dense, entry);
    if (covered || IsGone(entry)) {
      Unlink(link);
    } else {
      link = &entry.next;
    }
  }
  if (free_ == 0) return TurnAway(added);
  const uint32_t id = free_;
  BadEntry& entry = entries_[id - 1];
  free_ = entry.next;
  entry = added;
  entry.next = buckets_[bucket];
  buckets_[bucket] = id;
  entry.used_at = static_cast<uint32_t>(used_.size());
  used_.push_back(id);
  if (!entry.resident) transient_.fetch_add(1, std::memory_order_relaxed);
  size_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool BadValues::Find(const void* storage, uint64_t byte_begin, uint64_t byte_end,
                     BadEntry* found) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (entries_.empty()) return false;
  const uint32_t bucket = Bucket(storage);
  bool any = false;
  for (uint32_t* link = &buckets_[bucket]; *link != 0;) {
    BadEntry& entry = entries_[*link - 1];
    if (IsGone(entry)) {
      Unlink(link);
      continue;
    }
    if (Overlaps(entry, storage, byte_begin, byte_end)) {
      const bool same = entry.byte_begin == byte_begin && entry.byte_end == byte_end;
      if (same || (!any && entry.dense)) {
        *found = entry;
        return true;
      }
      if (!any) *found = entry;
      any = true;
    }
    link = &entry.next;
  }
  return any;
}

bool BadValues::FindKind(const void* storage, uint64_t byte_begin, uint64_t byte_end, uint8_t kind,
                         BadEntry* found) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (entries_.empty()) return false;
  for (uint32_t at = buckets_[Bucket(storage)]; at != 0; at = entries_[at - 1].next) {
    BadEntry& entry = entries_[at - 1];
    if (!Overlaps(entry, storage, byte_begin, byte_end) || (entry.kinds & kind) == 0 ||
        IsGone(entry)) {
      continue;
    }
    // Columns that lie between those asked about have nothing of them.
    const bool same = entry.byte_begin == byte_begin && entry.byte_end == byte_end;
    if (!entry.dense && !same) continue;
    *found = entry;
    return true;
  }
  return false;
}

uint64_t BadValues::CountWithin(const void* storage, uint64_t byte_begin, uint64_t byte_end,
                                uint8_t* kinds) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (entries_.empty()) return 0;
  constexpr size_t kPartsMax = 32;
  const BadEntry* parts[kPartsMax];
  size_t count = 0;
  uint64_t elements = 0;
  *kinds = 0;
  for (uint32_t at = buckets_[Bucket(storage)]; at != 0; at = entries_[at - 1].next) {
    BadEntry& entry = entries_[at - 1];
    if (!Overlaps(entry, storage, byte_begin, byte_end) || IsGone(entry)) continue;
    const bool is_within = entry.byte_begin >= byte_begin && entry.byte_end <= byte_end;
    const bool overlaps = std::any_of(parts, parts + count, [&](const BadEntry* part) {
      return Overlaps(*part, storage, entry.byte_begin, entry.byte_end);
    });
    if (!is_within || entry.elements == 0 || overlaps || count == kPartsMax) return 0;
    parts[count++] = &entry;
    elements += entry.elements;
    *kinds |= entry.kinds;
  }
  return elements;
}

void BadValues::Clear(const void* storage, uint64_t byte_begin, uint64_t byte_end,
                      bool dense) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (entries_.empty()) return;
  const uint32_t bucket = Bucket(storage);
  for (uint32_t* link = &buckets_[bucket]; *link != 0;) {
    BadEntry& entry = entries_[*link - 1];
    const bool covered =
        entry.storage.storage == storage && Covers(byte_begin, byte_end, dense, entry);
    if (covered || IsGone(entry)) {
      Unlink(link);
    } else {
      link = &entry.next;
    }
  }
}

void BadValues::Sweep(uint32_t budget) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  uint32_t left = static_cast<uint32_t>(used_.size());
  if (budget != 0 && budget < left) left = budget;
  for (; left != 0 && !used_.empty(); --left) {
    if (sweep_at_ >= used_.size()) sweep_at_ = 0;
    const uint32_t id = used_[sweep_at_];
    if (!IsGone(entries_[id - 1])) {
      ++sweep_at_;
      continue;
    }
    uint32_t* link = &buckets_[Bucket(entries_[id - 1].storage.storage)];
    while (*link != id) link = &entries_[*link - 1].next;
    Unlink(link);
  }
}

void BadValues::Settle(uint32_t now_step, uint32_t steps) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t id : used_) {
    BadEntry& entry = entries_[id - 1];
    if (!entry.resident && now_step - entry.born_step >= steps) {
      entry.resident = true;
      transient_.fetch_sub(1, std::memory_order_relaxed);
    }
  }
}

void BadValues::ForEach(void (*fn)(void*, const BadEntry&), void* context) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t id : used_) {
    if (!ops_.expired(entries_[id - 1].storage.handle)) fn(context, entries_[id - 1]);
  }
}

void BadValues::Reset() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    while (buckets_[bucket] != 0) Unlink(&buckets_[bucket]);
  }
}

}  // namespace nanwatch
