// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/gpu_collective_results.h"

#include <algorithm>
#include <new>

#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {
namespace {

bool LiesIn(const GpuCollectiveResults::CollectiveResult& result, const void* storage,
            uint64_t begin, uint64_t end) {
  return result.storage.storage == storage && result.byte_begin < end && begin < result.byte_end;
}

}  // namespace

bool GpuCollectiveResults::Record(const InputSeen& tensor, const CollectiveName& collective,
                                  const Layer* layer, uint64_t event, bool given_in) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (kept_ == nullptr) kept_.reset(new (std::nothrow) CollectiveResult[kKept]{});
  if (kept_ == nullptr) return false;
  // What came there before is written over.
  for (uint64_t i = count_ - std::min(count_, kUnlookedMax); i < count_; ++i) {
    CollectiveResult& older = kept_[i % kKept];
    if (older.looked_at ||
        !LiesIn(older, tensor.storage.storage, tensor.byte_begin, tensor.byte_end))
      continue;
    older.looked_at = true;
    unlooked_.fetch_sub(1, std::memory_order_relaxed);
  }
  if (count_ >= kUnlookedMax) {
    CollectiveResult& left = kept_[(count_ - kUnlookedMax) % kKept];
    if (!left.looked_at) unlooked_.fetch_sub(1, std::memory_order_relaxed);
    left.looked_at = true;
  }
  CollectiveResult& result = kept_[count_++ % kKept];
  if (result.storage.handle != nullptr) TorchWeakStorageOps().drop(result.storage.handle);
  result = CollectiveResult{};
  result.storage = HoldWeakly(static_cast<const c10::StorageImpl*>(tensor.storage.storage));
  result.byte_begin = tensor.byte_begin;
  result.byte_end = tensor.byte_end;
  result.event = event;
  result.collective = collective;
  result.layer = layer;
  result.given_in = given_in;
  unlooked_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool GpuCollectiveResults::TakeUnlooked(const InputSeen& tensor) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  bool any = false;
  for (uint64_t i = count_ - std::min(count_, kUnlookedMax); i < count_; ++i) {
    CollectiveResult& result = kept_[i % kKept];
    if (result.looked_at ||
        !LiesIn(result, tensor.storage.storage, tensor.byte_begin, tensor.byte_end)) {
      continue;
    }
    any = true;
    // Of a bucket the other tensors are still to come.
    if (tensor.byte_begin > result.byte_begin || tensor.byte_end < result.byte_end) continue;
    result.looked_at = true;
    unlooked_.fetch_sub(1, std::memory_order_relaxed);
  }
  return any;
}

bool GpuCollectiveResults::Find(const void* storage, uint64_t byte_begin, uint64_t byte_end,
                                uint64_t event, CollectiveResult* found) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const CollectiveResult* newest = nullptr;
  for (uint64_t i = count_; i-- > count_ - std::min(count_, kKept);) {
    const CollectiveResult& result = kept_[i % kKept];
    if (result.event >= event || !LiesIn(result, storage, byte_begin, byte_end)) continue;
    if (newest == nullptr || result.event > newest->event) newest = &result;
  }
  if (newest == nullptr) return false;
  *found = *newest;
  return true;
}

// Those of one event are mostly the newest, so that few are passed over.
void GpuCollectiveResults::SetStep(uint64_t event, uint32_t count, uint32_t step) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint64_t i = count_; count != 0 && i-- > count_ - std::min(count_, kKept);) {
    CollectiveResult& result = kept_[i % kKept];
    if (result.event != event) continue;
    result.step = step + 1;
    --count;
  }
}

void GpuCollectiveResults::SetValue(const CollectiveResult& of, ValueRef value, uint32_t site,
                                    bool own) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint64_t i = count_; i-- > count_ - std::min(count_, kKept);) {
    CollectiveResult& result = kept_[i % kKept];
    if (result.event != of.event || result.byte_begin != of.byte_begin ||
        result.storage.storage != of.storage.storage) {
      continue;
    }
    result.value = value;
    result.site = site;
    result.own = own;
    return;
  }
}

}  // namespace nanwatch
