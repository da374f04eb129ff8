// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/torch/callback_table.h"

#include <ATen/record_function.h>

#include <atomic>

#include "shim/host/done_within.h"
#include "shim/host/quiet_thread.h"

namespace nanwatch::callback_table {
namespace {

enum class Lock : int { kUnknown, kAsked, kFree };
std::atomic<Lock> lock{Lock::kUnknown};
std::atomic<int> looking{0};  // the thread that was asked

// A thread's first look at the table is under its lock.
void* LookOnce(void*) {
  looking.store(NumberOfThisThread(), std::memory_order_release);
  SeeLastChange();
  lock.store(Lock::kFree, std::memory_order_release);
  return nullptr;
}

}  // namespace

void SeeLastChange() noexcept try {
  (void)at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
} catch (...) {
}

bool IsFree() noexcept {
  Lock known = lock.load(std::memory_order_acquire);
  if (known != Lock::kUnknown) return known == Lock::kFree;
  if (!lock.compare_exchange_strong(known, Lock::kAsked)) return known == Lock::kFree;
  // Until it has begun, it has a processor to wait for: that is ours to tell.
  looking.store(NumberOfThisThread(), std::memory_order_release);
  return StartQuietThread(&LookOnce, nullptr) && DoneByThread(kPatienceMs, looking, &IsKnownFree);
}

bool IsKnownFree() noexcept { return lock.load(std::memory_order_acquire) == Lock::kFree; }

void Forget() noexcept {
  Lock free = Lock::kFree;
  (void)lock.compare_exchange_strong(free, Lock::kUnknown);
}

}  // namespace nanwatch::callback_table
