// SPDX-License-Identifier: Apache-2.0
// Lets the job's threads write to the segment at the same time, except while its file is made anew.
//
// Not std::shared_mutex: its functions carry the symbol version GLIBC_2.34 when linked on a current
// system, and the observer must load on older ones; and closing must be able to give up.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace nanwatch {

class WriteGate {
 public:
  void Enter() noexcept {
    while (true) {
      inside_.fetch_add(1, std::memory_order_seq_cst);
      if (!closed_.load(std::memory_order_seq_cst)) return;
      inside_.fetch_sub(1, std::memory_order_release);
      const std::lock_guard wait(closing_);
    }
  }
  void Leave() noexcept { inside_.fetch_sub(1, std::memory_order_release); }

  // Calls `action` while no thread is inside. False, without calling it, if one does not come out
  // (a thread that was cancelled inside never will): nobody waits for it for longer than `tries`
  // turns.
  template <typename Action>
  bool WhileClosed(int tries, Action&& action) noexcept {
    const std::lock_guard lock(closing_);
    closed_.store(true, std::memory_order_seq_cst);
    bool empty = inside_.load(std::memory_order_seq_cst) == 0;
    for (; !empty && tries > 0; --tries) {
      sched_yield();
      empty = inside_.load(std::memory_order_seq_cst) == 0;
    }
    if (empty) action();
    closed_.store(false, std::memory_order_seq_cst);
    return empty;
  }

  // Inside for a scope.
  class Pass {
   public:
    explicit Pass(WriteGate& gate) noexcept : gate_(gate) { gate_.Enter(); }
    ~Pass() { gate_.Leave(); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    WriteGate& gate_;
  };

 private:
  std::atomic<uint32_t> inside_{0};
  std::atomic<bool> closed_{false};
  std::mutex closing_;
};

}  // namespace nanwatch
