// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/forks.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

#include "shim/host/done_within.h"
#include "shim/observe/observer.h"
#include "shim/observe/torch/callback_table.h"

namespace nanwatch::forks {
namespace {

std::atomic<bool> may_wake{false};

// What this thread holds from BeforeFork to the handler behind the fork, in the order of locking;
// null: nothing. Plain pointers, so that a thread's end has nothing to destroy.
thread_local std::mutex* held_callbacks = nullptr;
thread_local std::mutex* held_names = nullptr;
// The process that forks is a forked child itself, in which no op has run: nobody holds anything.
thread_local bool is_asleep = false;

bool LockInTime(std::mutex& mutex) noexcept {
  constexpr int kPatienceMs = 50;
  return DoneWithin(kPatienceMs, [&mutex] { return mutex.try_lock(); });
}

void Unlock(std::mutex*& held) noexcept {
  if (held != nullptr) held->unlock();
  held = nullptr;
}

void BeforeFork() noexcept {
  Observer* observer = Observer::Get();
  if (observer == nullptr) return;
  is_asleep = !observer->Active() && may_wake.load(std::memory_order_relaxed);
  if (!observer->Active()) return;
  observer->measuring.OnFork();
  std::mutex& callbacks = observer->input_tracking.callbacks_mutex();
  std::mutex& names = observer->python->names().mutex();
  if (!LockInTime(callbacks)) return;
  held_callbacks = &callbacks;
  // In a child the lock may never be had.
  if (!observer->input_tracking.inherited() || callback_table::IsKnownFree()) {
    callback_table::SeeLastChange();
  }
  if (LockInTime(names)) held_names = &names;
}

void AfterForkInParent() noexcept {
  Unlock(held_names);
  Unlock(held_callbacks);
}

void AfterForkInChild() noexcept {
  callback_table::Forget();
  may_wake.store(held_names != nullptr || is_asleep, std::memory_order_relaxed);
  AfterForkInParent();
}

}  // namespace

bool InstallHandlers() noexcept {
  return pthread_atfork(&BeforeFork, &AfterForkInParent, &AfterForkInChild) == 0;
}

bool TakeTurnToWake() noexcept {
  return may_wake.load(std::memory_order_relaxed) &&
         may_wake.exchange(false, std::memory_order_acquire);
}

}  // namespace nanwatch::forks
