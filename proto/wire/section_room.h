// SPDX-License-Identifier: Apache-2.0
// How much of a section has pages. A segment's file is laid out in full and has holes: the job
// makes pages for a part of a section before it first stores to it, because a store to a hole of a
// full tmpfs is a SIGBUS. Private to the job; readers never reach a hole, because they read only
// what was published.
//
//   0                backed()                                   size
//   |  has pages     |  hole: neither stored to nor read         |
//
// Any thread. A writer asks Has() before it stores beyond what it knows; the answer costs one load,
// and a system call only where the section has to grow.
#pragma once

#include <atomic>
#include <cstdint>

namespace nanwatch::wire {

class SectionRoom {
 public:
  // Makes pages for at least the first `wanted` bytes and calls SetBacked; leaves it when there is
  // no room. Any thread; takes turns by itself.
  using Grow = void (*)(void* owner, SectionRoom& room, uint64_t wanted);

  SectionRoom() = default;
  SectionRoom(const SectionRoom&) = delete;
  SectionRoom& operator=(const SectionRoom&) = delete;

  // `offset` is the section's place in the file, `step` the least that it grows by. `doubles`: it
  // is as large again after each growth.
  void Set(Grow grow, void* owner, uint64_t offset, uint64_t size, uint64_t step,
           bool doubles) noexcept {
    grow_ = grow;
    owner_ = owner;
    offset_ = offset;
    size_ = size;
    step_ = step;
    doubles_ = doubles;
  }

  // Whether the first `bytes` bytes have pages, after an attempt to make them.
  [[nodiscard]] bool Has(uint64_t bytes) noexcept {
    if (bytes <= backed_.load(std::memory_order_acquire)) return true;
    if (bytes > size_ || grow_ == nullptr) return false;
    grow_(owner_, *this, bytes);
    return bytes <= backed_.load(std::memory_order_acquire);
  }

  // What to have after the next growth to `wanted` bytes at least.
  [[nodiscard]] uint64_t NextSize(uint64_t wanted) const noexcept {
    uint64_t next = backed();
    if (next == 0) next = step_;
    while (next < wanted) next += doubles_ ? next : step_;
    return next < size_ ? next : size_;
  }

  [[nodiscard]] uint64_t backed() const noexcept { return backed_.load(std::memory_order_acquire); }
  [[nodiscard]] uint64_t offset() const noexcept { return offset_; }
  [[nodiscard]] uint64_t size() const noexcept { return size_; }
  void SetBacked(uint64_t bytes) noexcept { backed_.store(bytes, std::memory_order_release); }

  // Ends all growth, and gives what has pages: a ring that cannot grow goes on as a smaller one.
  // Two threads get the same answer, because growth in progress has ended before.
  [[nodiscard]] uint64_t Freeze() noexcept {
    frozen_.store(true, std::memory_order_seq_cst);
    if (grow_ != nullptr) grow_(owner_, *this, 0);  // waits for its turn and grows nothing
    return backed();
  }
  [[nodiscard]] bool frozen() const noexcept { return frozen_.load(std::memory_order_seq_cst); }

  // When to try again after a refusal, CLOCK_MONOTONIC; the grower's.
  std::atomic<uint64_t> retry_at_ns{0};

 private:
  Grow grow_ = nullptr;
  void* owner_ = nullptr;
  uint64_t offset_ = 0;
  uint64_t size_ = 0;
  uint64_t step_ = 4096;
  bool doubles_ = false;
  std::atomic<uint64_t> backed_{0};
  std::atomic<bool> frozen_{false};
};

}  // namespace nanwatch::wire
