// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/late_copies.h"

#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {

void LateCopies::Add(const InputSeen& to, uint64_t number) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  Copy& copy = copies_[next_++ % kKept];
  if (copy.storage.handle != nullptr) TorchWeakStorageOps().drop(copy.storage.handle);
  copy = {HoldWeakly(static_cast<const c10::StorageImpl*>(to.storage.storage)), to.byte_begin,
          to.byte_end, number};
  newest_.store(number, std::memory_order_relaxed);
}

bool LateCopies::MayBeUnderWay(const PlainTensor& read, uint64_t number) noexcept {
  const uint64_t newest = newest_.load(std::memory_order_relaxed);
  if (newest == 0 || number > newest + kEventsUnderWay) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Copy& copy : copies_) {
    if (copy.storage.storage == read.storage && copy.byte_begin < read.byte_end &&
        read.byte_begin < copy.byte_end && number <= copy.number + kEventsUnderWay) {
      return true;
    }
  }
  return false;
}

}  // namespace nanwatch
