// The ticks of our own work where a step begins or ends, counted as those of ops are.
#pragma once

#include <cstdint>

#include "shim/host/ticks.h"
#include "shim/observe/thread_state.h"

namespace nanwatch {

// A step is told in the middle of our work: what comes after belongs to the next one.
inline void CountOwnWork(ThreadState* thread) noexcept {
  if (thread->own_since == 0) return;
  const uint64_t now = Ticks();
  thread->counters.own_ticks += now - thread->own_since;
  thread->own_since = now;
}

class OwnWork {
 public:
  explicit OwnWork(ThreadState* thread) noexcept : thread_(thread) { thread->own_since = Ticks(); }
  ~OwnWork() {
    CountOwnWork(thread_);
    thread_->own_since = 0;
  }
  OwnWork(const OwnWork&) = delete;
  OwnWork& operator=(const OwnWork&) = delete;

 private:
  ThreadState* thread_;
};

}  // namespace nanwatch
