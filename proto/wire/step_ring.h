// SPDX-License-Identifier: Apache-2.0
// The step rings: one entry per step, the oldest overwritten, so that a job may run for days before
// anybody reads. The reader notices what it missed. There are two, written side by side: what the
// observer counted (StepEntry), and what it read of the training itself (TelemetryEntry). Entries
// of one step have the same number.
//
//   StepRingHeader | Entry[capacity]; entry i lies at i % capacity
//
// Each entry is a seqlock. The writer stores, in this order:
//
//   sequence = 2 * (i + 1) - 1   the fields   sequence = 2 * (i + 1)   written = i + 1
//
// A field's store is a release and cannot move before the odd sequence. A field's load is an
// acquire, and the second load of the sequence cannot move before it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "proto/wire/section_room.h"
#include "proto/wire/segment.h"
#include "proto/wire/shared_words.h"

namespace nanwatch::wire {

template <typename Entry>
constexpr size_t StepRingBytes(uint64_t steps) {
  return sizeof(StepRingHeader) + steps * sizeof(Entry);
}
template <typename Entry>
inline constexpr size_t kStepFieldsBytes = sizeof(Entry) - offsetof(Entry, time_ns);

// The job's half. Any thread; publications take turns by a private mutex. Does not own the section,
// which must be zero.
template <typename Entry>
class StepRingWriter {
 public:
  // `room` is that of the entries, nullptr where all have pages.
  StepRingWriter(StepRingHeader* header, uint64_t capacity, SectionRoom* room = nullptr) noexcept
      : header_(header),
        entries_(reinterpret_cast<Entry*>(header + 1)),
        capacity_(capacity),
        capacity_max_(capacity),
        room_(room) {
    header_->capacity = capacity;
  }

  // `plain.sequence` is ignored. Nothing is written when not even one entry can have pages.
  void Publish(const Entry& plain) noexcept {
    const std::lock_guard lock(mutex_);
    if (!HasPages(1)) return;
    Entry& entry = entries_[written_ % capacity_];
    entry.sequence.store(2 * written_ + 1, std::memory_order_relaxed);
    StoreWords(&entry.time_ns, &plain.time_ns, kStepFieldsBytes<Entry>);
    entry.sequence.store(2 * written_ + 2, std::memory_order_release);
    header_->written.store(++written_, std::memory_order_release);
  }

  // Whether the next `count` entries can be written one after another. Where the section cannot
  // grow, the ring goes on as a smaller one, if it has room for them: in the first lap an entry
  // lies at the same place in both.
  [[nodiscard]] bool MakeRoom(uint64_t count) noexcept {
    const std::lock_guard lock(mutex_);
    return HasPages(count);
  }

  // Makes it a ring of so many entries, while it is in its first lap: fewer than it was made for,
  // not fewer than it holds.
  void SetCapacity(uint64_t capacity) noexcept {
    const std::lock_guard lock(mutex_);
    if (capacity > capacity_max_ || written_ > capacity || written_ > capacity_) return;
    if (room_ != nullptr && room_->frozen()) return;
    Take(capacity);
  }

  // After the section's content was lost and its memory zeroed: goes on with the next number. No
  // other thread is inside.
  void Restore() noexcept {
    header_->capacity = capacity_;
    header_->written.store(written_, std::memory_order_release);
  }

 private:
  bool HasPages(uint64_t count) noexcept {
    if (room_ == nullptr || written_ >= capacity_) return count <= capacity_;
    const uint64_t wanted = written_ + count < capacity_ ? written_ + count : capacity_;
    if (room_->Has(wanted * sizeof(Entry))) return count <= capacity_;
    if (room_->backed() / sizeof(Entry) < count) return false;
    Take(room_->Freeze() / sizeof(Entry));
    return true;
  }
  void Take(uint64_t capacity) noexcept {
    capacity_ = capacity;
    header_->capacity = capacity;
  }

  StepRingHeader* header_;
  Entry* entries_;
  uint64_t capacity_;
  const uint64_t capacity_max_;
  SectionRoom* room_;
  std::mutex mutex_;
  uint64_t written_ = 0;
};

// The daemon's half. Reads only, behind a cursor of its own; one thread.
template <typename Entry>
class StepRingReader {
 public:
  // Nothing if the header does not fit into the section's `size` bytes, which the caller has
  // checked against the file. `cursor` is the index of the first entry wanted.
  [[nodiscard]] static std::optional<StepRingReader> Open(const void* section, size_t size,
                                                          uint64_t cursor = 0) noexcept {
    if (size < sizeof(StepRingHeader)) return {};
    const auto* header = static_cast<const StepRingHeader*>(section);
    uint64_t capacity = 0;
    LoadWords(&capacity, &header->capacity, sizeof capacity);
    if (capacity == 0 || capacity > (size - sizeof(StepRingHeader)) / sizeof(Entry)) return {};
    return StepRingReader(header, capacity, cursor);
  }

  // Copies the next entry that still stands and goes on; false when there is none yet. Looks at one
  // lap of entries at most.
  [[nodiscard]] bool Read(Entry& out) noexcept {
    const uint64_t written = header_->written.load(std::memory_order_acquire);
    if (written <= cursor_) return false;  // also when it went backwards
    if (written - cursor_ > capacity_) {
      lost_ += written - cursor_ - capacity_;
      cursor_ = written - capacity_;
    }
    while (cursor_ < written) {
      if (ReadAt(cursor_++, out)) return true;
      ++lost_;
    }
    return false;
  }

  // Copies the entry with this number, its `sequence` included; false when it does not stand, or
  // not any more. Looks at that one place and leaves the cursor alone.
  [[nodiscard]] bool ReadAt(uint64_t index, Entry& out) const noexcept {
    const Entry& entry = entries_[index % capacity_];
    const uint64_t expected = 2 * index + 2;
    if (entry.sequence.load(std::memory_order_acquire) != expected) return false;
    LoadWords(&out.time_ns, &entry.time_ns, kStepFieldsBytes<Entry>);
    if (entry.sequence.load(std::memory_order_relaxed) != expected) return false;
    out.sequence.store(expected, std::memory_order_relaxed);
    return true;
  }

  [[nodiscard]] uint64_t cursor() const noexcept { return cursor_; }
  // Goes on with this entry.
  void Seek(uint64_t cursor) noexcept { cursor_ = cursor; }
  [[nodiscard]] uint64_t capacity() const noexcept { return capacity_; }
  // Entries overwritten before they were read.
  [[nodiscard]] uint64_t lost() const noexcept { return lost_; }

 private:
  StepRingReader(const StepRingHeader* header, uint64_t capacity, uint64_t cursor) noexcept
      : header_(header),
        entries_(reinterpret_cast<const Entry*>(header + 1)),
        capacity_(capacity),
        cursor_(cursor) {}

  const StepRingHeader* header_;
  const Entry* entries_;
  uint64_t capacity_;
  uint64_t cursor_;
  uint64_t lost_ = 0;
};

using StepWriter = StepRingWriter<StepEntry>;
using StepReader = StepRingReader<StepEntry>;
using TelemetryWriter = StepRingWriter<TelemetryEntry>;
using TelemetryReader = StepRingReader<TelemetryEntry>;
// One entry a finding, not a step; the rest is the same.
using TrailWriter = StepRingWriter<TrailEntry>;
using TrailReader = StepRingReader<TrailEntry>;

}  // namespace nanwatch::wire
