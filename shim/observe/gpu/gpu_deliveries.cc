#include "shim/observe/gpu/gpu_deliveries.h"

#include <algorithm>
#include <new>

#include "shim/observe/observer.h"

namespace nanwatch {
namespace {

bool LiesIn(const GpuDeliveries::Delivery& delivery, const void* storage, uint64_t begin,
            uint64_t end) {
  return delivery.storage.storage == storage && delivery.byte_begin < end &&
         begin < delivery.byte_end;
}

}  // namespace

bool GpuDeliveries::Note(const InputSeen& tensor, const CollectiveName& collective,
                         const Layer* layer, uint64_t event, bool given_in) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (kept_ == nullptr) kept_.reset(new (std::nothrow) Delivery[kKept]{});
  if (kept_ == nullptr) return false;
  // What came there before is written over.
  for (uint64_t i = count_ - std::min(count_, kUnlookedMax); i < count_; ++i) {
    Delivery& older = kept_[i % kKept];
    if (older.looked_at ||
        !LiesIn(older, tensor.storage.storage, tensor.byte_begin, tensor.byte_end))
      continue;
    older.looked_at = true;
    unlooked_.fetch_sub(1, std::memory_order_relaxed);
  }
  if (count_ >= kUnlookedMax) {
    Delivery& left = kept_[(count_ - kUnlookedMax) % kKept];
    if (!left.looked_at) unlooked_.fetch_sub(1, std::memory_order_relaxed);
    left.looked_at = true;
  }
  Delivery& delivery = kept_[count_++ % kKept];
  if (delivery.storage.handle != nullptr) TorchWeakStorageOps().drop(delivery.storage.handle);
  delivery = Delivery{};
  delivery.storage = HoldWeakly(static_cast<const c10::StorageImpl*>(tensor.storage.storage));
  delivery.byte_begin = tensor.byte_begin;
  delivery.byte_end = tensor.byte_end;
  delivery.event = event;
  delivery.collective = collective;
  delivery.layer = layer;
  delivery.given_in = given_in;
  unlooked_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool GpuDeliveries::TakeUnlooked(const InputSeen& tensor) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  bool any = false;
  for (uint64_t i = count_ - std::min(count_, kUnlookedMax); i < count_; ++i) {
    Delivery& delivery = kept_[i % kKept];
    if (delivery.looked_at ||
        !LiesIn(delivery, tensor.storage.storage, tensor.byte_begin, tensor.byte_end)) {
      continue;
    }
    any = true;
    // Of a bucket the other tensors are still to come.
    if (tensor.byte_begin > delivery.byte_begin || tensor.byte_end < delivery.byte_end) continue;
    delivery.looked_at = true;
    unlooked_.fetch_sub(1, std::memory_order_relaxed);
  }
  return any;
}

bool GpuDeliveries::Find(const void* storage, uint64_t byte_begin, uint64_t byte_end,
                         uint64_t event, Delivery* found) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Delivery* newest = nullptr;
  for (uint64_t i = count_; i-- > count_ - std::min(count_, kKept);) {
    const Delivery& delivery = kept_[i % kKept];
    if (delivery.event >= event || !LiesIn(delivery, storage, byte_begin, byte_end)) continue;
    if (newest == nullptr || delivery.event > newest->event) newest = &delivery;
  }
  if (newest == nullptr) return false;
  *found = *newest;
  return true;
}

// Those of one event are mostly the newest, so that few are passed over.
void GpuDeliveries::SetStep(uint64_t event, uint32_t count, uint32_t step) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint64_t i = count_; count != 0 && i-- > count_ - std::min(count_, kKept);) {
    Delivery& delivery = kept_[i % kKept];
    if (delivery.event != event) continue;
    delivery.step = step + 1;
    --count;
  }
}

void GpuDeliveries::SetValue(const Delivery& of, ValueRef value, uint32_t site, bool own) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint64_t i = count_; i-- > count_ - std::min(count_, kKept);) {
    Delivery& delivery = kept_[i % kKept];
    if (delivery.event != of.event || delivery.byte_begin != of.byte_begin ||
        delivery.storage.storage != of.storage.storage) {
      continue;
    }
    delivery.value = value;
    delivery.site = site;
    delivery.own = own;
    return;
  }
}

}  // namespace nanwatch
