// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/pass_leaves.h"

#include <algorithm>

namespace nanwatch {
namespace {

const c10::StorageImpl* StorageOf(const c10::TensorImpl& leaf) {
  return leaf.has_storage() ? leaf.unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace

void PassLeaves::Clear() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t i = 0; i < count_; ++i) leaves_[i] = {};
  count_ = 0;
  told_ = false;
}

void PassLeaves::Add(c10::TensorImpl* leaf) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (count_ == kMax) return;
  leaves_[count_].held = c10::weak_intrusive_ptr<c10::TensorImpl>(
      c10::intrusive_ptr<c10::TensorImpl>::unsafe_reclaim_from_nonowning(leaf));
  leaves_[count_++].storage = StorageOf(*leaf);
}

bool PassLeaves::Has(const c10::StorageImpl* storage) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(leaves_, leaves_ + count_,
                     [storage](const Leaf& leaf) { return leaf.storage == storage; });
}

bool PassLeaves::TakeReplaced() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (told_) return false;
  told_ = std::any_of(leaves_, leaves_ + count_, [](const Leaf& leaf) {
    const auto held = leaf.held.lock();
    return held.defined() && StorageOf(*held) != leaf.storage;
  });
  return told_;
}

}  // namespace nanwatch
