#include "shim/classify/recent_values.h"

#include <new>

namespace nanwatch {

ValueRef RecentValues::Add(Kept kept) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (kept_ == nullptr) kept_.reset(new (std::nothrow) Kept[kCapacity]());
  kept.index = next_++;
  if (kept_ != nullptr) kept_[kept.index % kCapacity] = kept;
  return ValueRef{kept.record.header.ticket, kept.index};
}

bool RecentValues::Trace(ValueRef ref, Kept* before) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (kept_ == nullptr || ref.index == 0) return false;
  Kept& kept = kept_[ref.index % kCapacity];
  if (kept.index != ref.index) return false;
  *before = kept;
  kept.written = true;
  kept.traced = true;
  return true;
}

bool RecentValues::Look(ValueRef ref, Kept* found) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (kept_ == nullptr || ref.index == 0 || kept_[ref.index % kCapacity].index != ref.index) {
    return false;
  }
  *found = kept_[ref.index % kCapacity];
  return true;
}

}  // namespace nanwatch
