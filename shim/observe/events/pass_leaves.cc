// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/pass_leaves.h"

#include <c10/core/TensorImpl.h>

#include <algorithm>

#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {

void PassLeaves::Clear() noexcept {
  const WeakStorageOps ops = TorchWeakStorageOps();
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t i = 0; i < count_; ++i) ops.drop(storages_[i].handle);
  count_ = 0;
}

void PassLeaves::Add(const c10::TensorImpl& leaf) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (count_ == kMax || !leaf.has_storage()) return;
  storages_[count_++] = HoldWeakly(leaf.unsafe_storage().unsafeGetStorageImpl());
}

bool PassLeaves::Has(const c10::StorageImpl* storage) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return storage != nullptr &&
         std::any_of(storages_, storages_ + count_,
                     [storage](const WeakStorage& held) { return held.storage == storage; });
}

}  // namespace nanwatch
