// SPDX-License-Identifier: Apache-2.0
// The finding ring: records of any length up to kRecordBytesMax, from many threads of one job to
// one consumer in another process. Neither side waits for the other, and no lock is shared.
//
//      released                cursor                reserved
//         |  read, not released   |  to be read           |  free: capacity - (reserved - released)
//   ------+-----------------------+-----------------------+-----------------------> slot number
//         |H . . H . H H . H . . .|H . . H ? ? H . H . . .|
//
//   H head   . continuation   ? reserved, not (yet) committed: a hole if the writer is dead
//
// Slot numbers count up for ever; slot n lies at n & (capacity - 1). A record is a head and its
// continuations, consecutive numbers, reserved together. The first word of a slot is the ring's:
//   job:     advance reserved_slots by compare-and-swap if released_slots leaves room, else drop
//            and count. Continuations: first word 0, payload. Head: payload, then first word = own
//            number + 1.
//   daemon:  a head that carries its own number + 1 is complete. Copy, validate, commit to the
//            database, then advance released_slots.
//
// Why a stale slot never looks complete: its first word is 0 or was written for a lower number.
//
// Memory order, in pairs:
//   - the head's first word: stored with release after everything else of the record; loaded with
//     acquire before any of it is read. The only publication.
//   - released_slots: stored with release after the daemon's last read of a slot; loaded with
//     acquire by the job before its first write to it.
//   - reserved_slots: only a number to the reader, which never reads behind it without a head's
//     acquire.
//
// The reader assumes nothing. Indices are masked with its own copy of the capacity, lengths are
// checked against the copy that is handed out, and one call does work in proportion to the slots it
// passes, at most one lap, whatever the cursors say.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "proto/wire/record.h"
#include "proto/wire/section_room.h"
#include "proto/wire/segment.h"
#include "proto/wire/shared_words.h"

namespace nanwatch::wire {

// ---- the job's half

// Writes records. Any thread; lock-free, no system call and no allocation but where the ring has to
// grow in its first lap. Does not own the memory.
//
// A ring whose `room` refuses to grow goes on as a smaller one once somebody reads it: slot numbers
// of the first lap lie at the same place in both, so that the capacity may fall between two
// records. A reader that still has the larger one finds nothing there, and reads it the next time.
class RingWriter {
 public:
  // `capacity` is a power of two; the caller has zeroed the memory. It is remembered here: what
  // stands in shared memory is for readers. `room` is that of the slots, nullptr where all have
  // pages; it grows from one power of two to the next.
  RingWriter(RingHeader* header, Slot* slots, uint64_t capacity,
             SectionRoom* room = nullptr) noexcept
      : header_(header), slots_(slots), capacity_(capacity), room_(room) {
    header_->capacity = capacity;
  }

  // False when there is no room, or when `bytes` is 0 or above kRecordBytesMax: counted as dropped.
  [[nodiscard]] bool Write(const void* record, size_t bytes) noexcept {
    const size_t slots = SlotsFor(bytes);
    uint64_t head = 0;
    if (slots == 0 || slots > kRecordSlotsMax || !Reserve(slots, &head)) {
      header_->records_dropped.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    const auto* from = static_cast<const unsigned char*>(record);
    const uint64_t mask = capacity_.load(std::memory_order_relaxed) - 1;
    for (size_t i = slots; i-- > 0;) {  // the head last
      Slot& slot = slots_[(head + i) & mask];
      const size_t done = i * kSlotPayloadBytes;
      const size_t left = bytes - done;
      if (i > 0) slot.commit.store(0, std::memory_order_relaxed);
      StoreWords(slot.payload, from + done, left < kSlotPayloadBytes ? left : kSlotPayloadBytes);
    }
    slots_[head & mask].commit.store(head + 1, std::memory_order_release);
    return true;
  }

  // After the section's content was lost and its memory zeroed: goes on with the next number, so
  // that no reader takes a new record for one that it has read. Each slot that was not yet seen
  // released counts as a dropped record. No other thread is inside.
  void Restore() noexcept {
    const uint64_t next = next_.load(std::memory_order_relaxed);
    const uint64_t released = released_seen_.load(std::memory_order_relaxed);
    header_->capacity = capacity_.load(std::memory_order_relaxed);
    header_->records_dropped.store(next > released ? next - released : 0,
                                   std::memory_order_relaxed);
    header_->released_slots.store(next, std::memory_order_relaxed);
    header_->reserved_slots.store(next, std::memory_order_release);
  }

 private:
  // Whether the slots from `reserved` on may be stored to. False: the ring has no room for them.
  bool HasPages(uint64_t reserved, uint64_t slots) noexcept {
    const uint64_t capacity = capacity_.load(std::memory_order_relaxed);
    if (room_ == nullptr || reserved >= capacity) return true;
    if (room_->Has(std::min(reserved + slots, capacity) * sizeof(Slot))) return true;
    const uint64_t released = header_->released_slots.load(std::memory_order_acquire);
    const uint64_t backed = room_->backed() / sizeof(Slot);
    const bool helps = released != 0 && released <= reserved && backed >= slots &&
                       reserved - released <= backed - slots;
    if (!helps) return false;
    const uint64_t left = room_->Freeze() / sizeof(Slot);
    capacity_.store(left, std::memory_order_relaxed);
    header_->capacity = left;
    return true;
  }

  bool Reserve(uint64_t slots, uint64_t* head) noexcept {
    uint64_t reserved = header_->reserved_slots.load(std::memory_order_relaxed);
    do {
      if (!HasPages(reserved, slots)) return false;
      const uint64_t capacity = capacity_.load(std::memory_order_relaxed);
      // A released_slots that no daemon of ours would write (above reserved) makes the difference
      // huge: full.
      const uint64_t released = header_->released_slots.load(std::memory_order_acquire);
      released_seen_.store(released, std::memory_order_relaxed);
      const uint64_t used = reserved - released;
      if (used > capacity || capacity - used < slots) {
        // It may also be `reserved` that is stale: another thread went on, the daemon released
        // behind it.
        const uint64_t again = header_->reserved_slots.load(std::memory_order_relaxed);
        if (again == reserved) return false;
        reserved = again;
        continue;
      }
      if (header_->reserved_slots.compare_exchange_weak(reserved, reserved + slots,
                                                        std::memory_order_relaxed)) {
        *head = reserved;
        NoteNext(reserved + slots);
        return true;
      }
    } while (true);
  }

  void NoteNext(uint64_t next) noexcept {
    uint64_t before = next_.load(std::memory_order_relaxed);
    while (before < next && !next_.compare_exchange_weak(before, next, std::memory_order_relaxed)) {
    }
  }

  RingHeader* header_;
  Slot* slots_;
  std::atomic<uint64_t> capacity_;
  std::atomic<uint64_t> next_{0};  // reserved so far, where nobody else can write
  std::atomic<uint64_t> released_seen_{0};
  SectionRoom* room_;
};

// ---- the daemon's half

enum class RingRead {
  kRecord,     // one record was copied out; the cursor stands behind it
  kEmpty,      // nothing reserved beyond the cursor
  kPending,    // the next record is being written; only with Holes::kWait
  kMalformed,  // what lay there was no record; the cursor went on by at least one slot
};

// What to do about a slot that is reserved and not committed. While the job lives it will be; once
// it is dead (segment.h says when) it never will.
enum class Holes { kWait, kSkip };

// A private copy of one record. Its header's `bytes` and `kind` are in range; all else is not
// validated.
struct RecordCopy {
  alignas(8) unsigned char bytes[kRecordSlotsMax * kSlotPayloadBytes];
  [[nodiscard]] const RecordHeader& header() const noexcept {
    return *reinterpret_cast<const RecordHeader*>(bytes);
  }
};

// Reads records behind a cursor of its own; writes nothing, so that a mapping without write
// permission will do (`tail` and `ps` look without consuming). One thread.
class RingReader {
 public:
  // `section` is the finding section as mapped, `size` its bytes, both checked against the file's
  // size by the caller. Nothing if its header cannot be true. `cursor` as stored with the rows of
  // the last commit; without one, start at Released().
  [[nodiscard]] static std::optional<RingReader> Open(
      const void* section, size_t size, std::optional<uint64_t> cursor = {}) noexcept {
    if (size < sizeof(RingHeader) + sizeof(Slot)) return {};
    const auto* header = static_cast<const RingHeader*>(section);
    uint64_t capacity = 0;
    LoadWords(&capacity, &header->capacity, sizeof capacity);
    const bool power_of_two = capacity != 0 && (capacity & (capacity - 1)) == 0;
    if (!power_of_two || capacity > (size - sizeof(RingHeader)) / sizeof(Slot)) return {};
    const auto* slots = reinterpret_cast<const Slot*>(header + 1);
    RingReader reader(header, slots, capacity, 0);
    reader.cursor_ = cursor.value_or(reader.Released());
    return reader;
  }

  [[nodiscard]] RingRead Read(RecordCopy& out, Holes holes) noexcept {
    const uint64_t released = Released();
    const uint64_t reserved = header_->reserved_slots.load(std::memory_order_acquire);
    if (reserved <= cursor_) return RingRead::kEmpty;  // also when it went backwards
    if (released > cursor_ && released <= reserved) PassBy(released);  // somebody else consumed
    if (reserved == cursor_) return RingRead::kEmpty;
    if (reserved - cursor_ > capacity_) {  // no writer gets a lap ahead of who releases
      PassBy(reserved - capacity_);
      return Malformed();
    }
    if (!IsHead(cursor_)) {
      if (holes == Holes::kWait) return RingRead::kPending;
      const uint64_t head = NextHead(cursor_, reserved);
      hole_slots_ += head - cursor_;
      cursor_ = head;
      if (head == reserved) return RingRead::kEmpty;
    }
    return Copy(out, reserved);
  }

  // Everything below it has been read: what to store with the rows, and to release after the
  // commit.
  [[nodiscard]] uint64_t cursor() const noexcept { return cursor_; }
  [[nodiscard]] uint64_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] uint64_t Released() const noexcept {
    return header_->released_slots.load(std::memory_order_acquire);
  }
  // Records the job had no room for.
  [[nodiscard]] uint64_t Dropped() const noexcept {
    return header_->records_dropped.load(std::memory_order_relaxed);
  }

  // Loss seen by this reader. Slots reserved by a writer that died before it committed them:
  [[nodiscard]] uint64_t hole_slots() const noexcept { return hole_slots_; }
  // kMalformed returned:
  [[nodiscard]] uint64_t malformed() const noexcept { return malformed_; }
  // Slots passed by unread, because another reader released them or because the cursors made no
  // sense:
  [[nodiscard]] uint64_t passed_slots() const noexcept { return passed_slots_; }

 private:
  RingReader(const RingHeader* header, const Slot* slots, uint64_t capacity,
             uint64_t cursor) noexcept
      : header_(header), slots_(slots), capacity_(capacity), cursor_(cursor) {}

  const Slot& At(uint64_t number) const noexcept { return slots_[number & (capacity_ - 1)]; }
  bool IsHead(uint64_t number) const noexcept {
    return At(number).commit.load(std::memory_order_acquire) == number + 1;
  }
  uint64_t NextHead(uint64_t number, uint64_t reserved) const noexcept {
    while (number < reserved && !IsHead(number)) ++number;
    return number;
  }
  void PassBy(uint64_t number) noexcept {
    passed_slots_ += number - cursor_;
    cursor_ = number;
  }
  RingRead Malformed() noexcept {
    ++malformed_;
    return RingRead::kMalformed;
  }
  // Without a length to go by, the next head is where reading can go on.
  RingRead Resync(uint64_t reserved) noexcept {
    PassBy(NextHead(cursor_ + 1, reserved));
    return Malformed();
  }

  RingRead Copy(RecordCopy& out, uint64_t reserved) noexcept {
    LoadWords(out.bytes, At(cursor_).payload, kSlotPayloadBytes);
    const size_t bytes = out.header().bytes;  // of the copy: it cannot change any more
    const uint64_t slots = SlotsFor(bytes);
    if (bytes < sizeof(RecordHeader) || bytes > kRecordBytesMax || slots > reserved - cursor_) {
      return Resync(reserved);
    }
    for (uint64_t i = 1; i < slots; ++i) {
      const Slot& slot = At(cursor_ + i);
      if (slot.commit.load(std::memory_order_acquire) != 0) return Resync(reserved);
      LoadWords(out.bytes + i * kSlotPayloadBytes, slot.payload, kSlotPayloadBytes);
    }
    // Released while it was copied, so perhaps overwritten: only when another reader consumes.
    const uint64_t released = Released();
    if (released > cursor_ && released <= header_->reserved_slots.load(std::memory_order_relaxed)) {
      PassBy(released);
      return Malformed();
    }
    cursor_ += slots;
    const uint16_t kind = out.header().kind;
    if (kind == 0 || kind > kRecordKindMax) return Malformed();  // of a newer job, perhaps
    return RingRead::kRecord;
  }

  const RingHeader* header_;
  const Slot* slots_;
  uint64_t capacity_;
  uint64_t cursor_;
  uint64_t hole_slots_ = 0;
  uint64_t malformed_ = 0;
  uint64_t passed_slots_ = 0;
};

// Gives slots below `cursor` back to the job. Only after what they held is committed. Never goes
// backwards and never beyond what is reserved, so that a stale cursor does no harm.
inline void ReleaseSlots(RingHeader& header, uint64_t cursor) noexcept {
  if (cursor > header.reserved_slots.load(std::memory_order_acquire)) return;
  uint64_t released = header.released_slots.load(std::memory_order_relaxed);
  while (released < cursor && !header.released_slots.compare_exchange_weak(
                                  released, cursor, std::memory_order_release)) {
  }
}

}  // namespace nanwatch::wire
