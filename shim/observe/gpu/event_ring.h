// SPDX-License-Identifier: Apache-2.0
// The queue of GPU events as memory: events of any size, one behind another, reserved by any thread
// and released by the one that resolves them. A thread fills in what it has reserved and publishes
// it; an event that is not published yet holds up those behind it. Nothing is allocated once the
// memory is mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>

#include "shim/classify/bad_values.h"
#include "shim/observe/gpu/queue_memory.h"
#include "shim/observe/gpu/queued_events.h"

namespace nanwatch {

class EventRing {
 public:
  // Before all others. False: there is no memory. `bytes_for_test`: as of MapQueue.
  [[nodiscard]] bool Map(uint64_t bytes_for_test) noexcept;

  // Numbers of events: `noted` so far, and `told`, which is the last that was released.
  [[nodiscard]] EventClock& clock() noexcept { return clock_; }
  [[nodiscard]] const EventClock& clock() const noexcept { return clock_; }
  [[nodiscard]] uint64_t next_event() const noexcept {
    return clock_.noted.load(std::memory_order_relaxed) + 1;
  }

  // An event with a number of its own, and so many bytes behind it. Null: the queue is full.
  template <class T>
  [[nodiscard]] T* Reserve(size_t extra_bytes = 0) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t bytes = (sizeof(T) + extra_bytes + kEventAlignment - 1) & ~(kEventAlignment - 1);
    if (!MakeRoom(bytes)) return nullptr;
    auto* event = new (At(end_)) T;
    Number(event, bytes);
    return event;
  }
  void Publish(QueuedEvent* event) noexcept;

  // The oldest event, once it is published. Null: there is none.
  [[nodiscard]] QueuedEvent* Head() noexcept;
  // That one is gone.
  void Release(QueuedEvent* event) noexcept;
  [[nodiscard]] bool IsEmpty() noexcept;
  // Whether the queue was more than half full since this was asked last.
  [[nodiscard]] bool TakePressure() noexcept {
    return pressed_.exchange(false, std::memory_order_relaxed);
  }

 private:
  // Where the byte lies before which so many were ever reserved.
  [[nodiscard]] unsigned char* At(uint64_t byte) const noexcept {
    return memory_->begin + (byte & (memory_->bytes - 1));
  }
  // With mutex_ held: so many bytes in one piece at end_. False: there are none.
  [[nodiscard]] bool MakeRoom(uint64_t bytes) noexcept;
  void Number(QueuedEvent* event, uint64_t bytes) noexcept;

  EventClock clock_;
  std::atomic<bool> pressed_{false};
  std::mutex mutex_;  // covers the rest
  const QueueMemory* memory_ = nullptr;
  uint64_t begin_ = 0;  // bytes ever released, and ever reserved
  uint64_t end_ = 0;
};

}  // namespace nanwatch
