// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/event_ring.h"

namespace nanwatch {

bool EventRing::Map(uint64_t bytes_for_test) noexcept {
  memory_ = MapQueue(bytes_for_test);
  return memory_ != nullptr;
}

bool EventRing::MakeRoom(uint64_t bytes) noexcept {
  const uint64_t to_the_end = memory_->bytes - (end_ & (memory_->bytes - 1));
  const uint64_t filler = bytes > to_the_end ? to_the_end : 0;
  if (end_ + filler + bytes - begin_ > memory_->bytes) {
    pressed_.store(true, std::memory_order_relaxed);
    return false;
  }
  if (filler == 0) return true;
  static_assert(offsetof(QueuedEvent, moment) <= kEventAlignment, "a filler has all before it");
  auto* unused = reinterpret_cast<QueuedEvent*>(At(end_));
  unused->bytes = static_cast<uint32_t>(filler);
  unused->kind = EventKind::kNothing;
  unused->ticket = 0;
  unused->graph = nullptr;
  unused->number = 0;
  unused->noted.store(true, std::memory_order_relaxed);
  end_ += filler;
  return true;
}

void EventRing::Number(QueuedEvent* event, uint64_t bytes) noexcept {
  event->bytes = static_cast<uint32_t>(bytes);
  event->noted.store(false, std::memory_order_relaxed);
  event->ticket = 0;
  event->graph = nullptr;
  event->number = clock_.noted.fetch_add(1, std::memory_order_acq_rel) + 1;
  end_ += bytes;
  if (end_ - begin_ > memory_->bytes / 2) pressed_.store(true, std::memory_order_relaxed);
}

void EventRing::Publish(QueuedEvent* event) noexcept {
  event->noted.store(true, std::memory_order_release);
}

QueuedEvent* EventRing::Head() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (begin_ == end_) return nullptr;
  auto* head = reinterpret_cast<QueuedEvent*>(At(begin_));
  return head->noted.load(std::memory_order_acquire) ? head : nullptr;
}

void EventRing::Release(QueuedEvent* event) noexcept {
  const uint64_t number = event->number;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    begin_ += event->bytes;
  }
  if (number != 0) clock_.told.store(number, std::memory_order_release);
}

bool EventRing::IsEmpty() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return begin_ == end_;
}

}  // namespace nanwatch
