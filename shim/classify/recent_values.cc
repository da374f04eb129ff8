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

bool RecentValues::TakeUnwritten(ValueRef ref, Kept* taken) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (kept_ == nullptr || ref.index == 0) return false;
  Kept& kept = kept_[ref.index % kCapacity];
  if (kept.index != ref.index || kept.written) return false;
  kept.written = true;
  *taken = kept;
  return true;
}

}  // namespace nanwatch
