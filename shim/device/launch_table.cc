// SPDX-License-Identifier: Apache-2.0
#include "shim/device/launch_table.h"

#include <new>

#include "proto/wire/hash.h"

namespace nanwatch::device {
namespace {

constexpr uint32_t SlotIn(uint64_t head) { return static_cast<uint32_t>(head); }
constexpr uint64_t WithSlot(uint64_t head, uint32_t slot) {
  return (((head >> 32) + 1) << 32) | slot;
}

}  // namespace

std::unique_ptr<LaunchTable> LaunchTable::Create(uint32_t slots) noexcept {
  std::unique_ptr<LaunchTable> table(new (std::nothrow) LaunchTable());
  if (table == nullptr) return nullptr;
  table->launches_.reset(new (std::nothrow) PendingLaunch[slots]);
  if (table->launches_ == nullptr) return nullptr;
  table->slots_ = slots;
  for (uint32_t slot = slots; slot-- > 0;) table->Give(slot);
  return table;
}

uint32_t LaunchTable::Take() noexcept {
  uint64_t head = free_.load(std::memory_order_acquire);
  while (SlotIn(head) != kNilSlot) {
    const uint32_t slot = SlotIn(head);
    // Another thread may have taken the slot by now; then what is read here is not used.
    const uint32_t next = launches_[slot].next_free.load(std::memory_order_relaxed);
    if (free_.compare_exchange_weak(head, WithSlot(head, next), std::memory_order_acq_rel,
                                    std::memory_order_acquire)) {
      return slot;
    }
  }
  return kNilSlot;
}

void LaunchTable::Give(uint32_t slot) noexcept {
  uint64_t head = free_.load(std::memory_order_relaxed);
  do {
    launches_[slot].next_free.store(SlotIn(head), std::memory_order_relaxed);
  } while (!free_.compare_exchange_weak(head, WithSlot(head, slot), std::memory_order_acq_rel,
                                        std::memory_order_relaxed));
}

uint32_t LaunchTable::StreamFor(uint64_t key) noexcept {
  // Handles are addresses and ids are small: the multiplication spreads both.
  const uint32_t start = static_cast<uint32_t>((key * wire::kGoldenRatio) >> 32) % kStreamsMax;
  for (uint32_t i = 0; i < kStreamsMax; ++i) {
    const uint32_t index = (start + i) % kStreamsMax;
    uint64_t found = streams_[index].key.load(std::memory_order_acquire);
    if (found == 0 && streams_[index].key.compare_exchange_strong(
                          found, key, std::memory_order_acq_rel, std::memory_order_acquire)) {
      made_[index / 64].fetch_or(uint64_t{1} << (index % 64), std::memory_order_relaxed);
      return index;
    }
    if (found == key) return index;
  }
  return kStreamsMax;
}

void LaunchTable::Push(LaunchStream& stream, uint32_t slot) noexcept {
  stream.queued.fetch_add(1, std::memory_order_relaxed);
  uint32_t head = stream.incoming.load(std::memory_order_relaxed);
  do {
    launches_[slot].next_queued = head;
  } while (!stream.incoming.compare_exchange_weak(head, slot, std::memory_order_release,
                                                  std::memory_order_relaxed));
}

void LaunchTable::TakeQueued(LaunchStream& stream) noexcept {
  uint32_t slot = stream.incoming.exchange(kNilSlot, std::memory_order_acquire);
  if (slot == kNilSlot) return;
  // Newest first: turned round, and put behind what is there.
  const uint32_t newest = slot;
  uint32_t oldest = kNilSlot;
  while (slot != kNilSlot) {
    const uint32_t next = launches_[slot].next_queued;
    launches_[slot].next_queued = oldest;
    oldest = slot;
    slot = next;
  }
  if (stream.oldest == kNilSlot) {
    stream.oldest = oldest;
  } else {
    launches_[stream.newest].next_queued = oldest;
  }
  stream.newest = newest;
}

}  // namespace nanwatch::device
