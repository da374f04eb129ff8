// SPDX-License-Identifier: Apache-2.0
// The name table: every text that records mention, written once and then named by number.
// Append-only and bounded: when it is full, further names are id 0 ("unknown") and counted by the
// caller.
//
//   NameTableHeader | NameEntry[capacity] | text area, bytes_capacity bytes
//
// Entry id - 1 is published by its length_plus_one, stored with release after text and offset. A
// job that dies in between leaves an entry of length_plus_one 0, which a reader takes for an empty
// name.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "proto/wire/hash.h"
#include "proto/wire/private_index.h"
#include "proto/wire/section_room.h"
#include "proto/wire/segment.h"
#include "proto/wire/shared_words.h"
#include "proto/wire/text.h"

namespace nanwatch::wire {

// Bytes of a section with room for this much. `text_bytes` is a multiple of 8.
constexpr size_t NameTableBytes(uint32_t names, uint32_t text_bytes) {
  return sizeof(NameTableHeader) + names * sizeof(NameEntry) + text_bytes;
}

// The job's half. Any thread: a name seen before costs a hash and a comparison, a new one a private
// mutex. Does not own the section, which must be zero.
class NameWriter {
 public:
  // `entries_room` and `text_room` are nullptr where all of it has pages.
  NameWriter(NameTableHeader* header, uint32_t capacity, uint32_t bytes_capacity,
             SectionRoom* entries_room = nullptr, SectionRoom* text_room = nullptr) noexcept
      : header_(header),
        entries_(reinterpret_cast<NameEntry*>(header + 1)),
        text_(reinterpret_cast<char*>(entries_ + capacity)),
        capacity_(capacity),
        bytes_capacity_(bytes_capacity),
        index_(capacity),
        places_(new (std::nothrow) Place[capacity]),
        copy_(new (std::nothrow) char[bytes_capacity]),
        entries_room_(entries_room),
        text_room_(text_room) {
    header_->capacity = capacity;
    header_->bytes_capacity = bytes_capacity;
  }

  // The id of `name`, cut to kTextBytesMax; 0 for the empty name, and when the table is full.
  [[nodiscard]] uint32_t Intern(std::string_view name) noexcept {
    name = CutText(name, kTextBytesMax);
    if (name.empty() || !index_.usable() || places_ == nullptr || copy_ == nullptr) return 0;
    const uint64_t hash = HashBytes(name.data(), name.size());
    const auto is_same = [&](uint32_t id) {
      const Place& place = places_[id - 1];
      return place.length == name.size() &&
             std::memcmp(copy_.get() + place.offset, name.data(), name.size()) == 0;
    };
    if (const uint32_t id = index_.Find(hash, is_same)) return id;
    const std::lock_guard lock(mutex_);
    if (const uint32_t id = index_.Find(hash, is_same)) return id;
    return Append(name, hash);
  }

  // After the section's content was lost and its memory zeroed: writes every name again under its
  // number. No other thread is inside.
  void Restore() noexcept {
    header_->capacity = capacity_;
    header_->bytes_capacity = bytes_capacity_;
    if (count_ == 0) return;
    std::memcpy(text_, copy_.get(), bytes_used_);
    for (uint32_t i = 0; i < count_; ++i) {
      entries_[i].offset = places_[i].offset;
      entries_[i].length_plus_one.store(places_[i].length + 1, std::memory_order_release);
    }
    header_->bytes_used.store(bytes_used_, std::memory_order_relaxed);
    header_->count.store(count_, std::memory_order_release);
  }

 private:
  struct Place {
    uint32_t offset;
    uint32_t length;
  };

  bool HasPages(size_t length) noexcept {
    return (entries_room_ == nullptr ||
            entries_room_->Has((uint64_t{count_} + 1) * sizeof(NameEntry))) &&
           (text_room_ == nullptr || text_room_->Has(uint64_t{bytes_used_} + length));
  }

  uint32_t Append(std::string_view name, uint64_t hash) noexcept {
    if (count_ == capacity_ || bytes_capacity_ - bytes_used_ < name.size()) return 0;
    if (!HasPages(name.size())) return 0;
    std::memcpy(text_ + bytes_used_, name.data(), name.size());
    std::memcpy(copy_.get() + bytes_used_, name.data(), name.size());
    NameEntry& entry = entries_[count_];
    const auto length = static_cast<uint32_t>(name.size());
    places_[count_] = {bytes_used_, length};
    entry.offset = bytes_used_;
    entry.length_plus_one.store(length + 1, std::memory_order_release);
    bytes_used_ += length;
    header_->bytes_used.store(bytes_used_, std::memory_order_relaxed);
    header_->count.store(++count_, std::memory_order_release);
    index_.Add(hash, count_);
    return count_;
  }

  NameTableHeader* header_;
  NameEntry* entries_;
  char* text_;
  uint32_t capacity_;
  uint32_t bytes_capacity_;
  std::mutex mutex_;
  uint32_t count_ = 0;
  uint32_t bytes_used_ = 0;
  PrivateIndex index_;
  std::unique_ptr<Place[]> places_;  // what the entries say, where nobody else can write
  std::unique_ptr<char[]> copy_;     // what the text area says, likewise
  SectionRoom* entries_room_;
  SectionRoom* text_room_;
};

// The daemon's half. Reads only; any thread.
class NameReader {
 public:
  // Nothing if the header does not fit into the section's `size` bytes, which the caller has
  // checked against the file.
  [[nodiscard]] static std::optional<NameReader> Open(const void* section, size_t size) noexcept {
    if (size < sizeof(NameTableHeader)) return {};
    const auto* header = static_cast<const NameTableHeader*>(section);
    uint64_t words[2];  // count, capacity; bytes_used, bytes_capacity
    LoadWords(words, header, sizeof words);
    static_assert(offsetof(NameTableHeader, capacity) == SecondHalfOf(0));
    static_assert(offsetof(NameTableHeader, bytes_capacity) == SecondHalfOf(1));
    const uint32_t capacity = SecondHalf(words[0]);
    const uint32_t bytes_capacity = SecondHalf(words[1]);
    const uint64_t entries_bytes = uint64_t{capacity} * sizeof(NameEntry);
    if (entries_bytes + bytes_capacity > size - sizeof(NameTableHeader)) return {};
    return NameReader(header, capacity, bytes_capacity);
  }

  // How many ids have been handed out, at most the capacity.
  [[nodiscard]] uint32_t Count() const noexcept {
    const uint32_t count = header_->count.load(std::memory_order_acquire);
    return count < capacity_ ? count : capacity_;
  }

  // The text of `id` made clean (text.h), "" for 0, unknown ids and entries that cannot be true.
  // Never changes once it is not "" in a truthful segment, so that it may be cached.
  [[nodiscard]] std::string Get(uint32_t id) const {
    if (id == 0 || id > capacity_) return {};
    const NameEntry& entry = entries_[id - 1];
    const uint32_t length_plus_one = entry.length_plus_one.load(std::memory_order_acquire);
    if (length_plus_one <= 1) return {};
    uint64_t word = 0;
    LoadWords(&word, &entry, sizeof word);
    static_assert(offsetof(NameEntry, offset) == SecondHalfOf(0));
    const uint32_t offset = SecondHalf(word);
    const uint32_t length =
        length_plus_one - 1 < kTextBytesMax ? length_plus_one - 1 : kTextBytesMax;
    if (offset > bytes_capacity_ || length > bytes_capacity_ - offset) return {};
    char copy[kTextBytesMax];
    std::memcpy(copy, text_ + offset, length);
    return CleanText({copy, length});
  }

 private:
  NameReader(const NameTableHeader* header, uint32_t capacity, uint32_t bytes_capacity) noexcept
      : header_(header),
        entries_(reinterpret_cast<const NameEntry*>(header + 1)),
        text_(reinterpret_cast<const char*>(entries_ + capacity)),
        capacity_(capacity),
        bytes_capacity_(bytes_capacity) {}

  const NameTableHeader* header_;
  const NameEntry* entries_;
  const char* text_;
  uint32_t capacity_;
  uint32_t bytes_capacity_;
};

}  // namespace nanwatch::wire
