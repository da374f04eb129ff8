// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/sampled_values.h"

#include <sys/mman.h>

#include <algorithm>

#include "shim/host/zeroed_memory.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {

void SampledValue::Drop() noexcept {
  if (seen.storage.handle == nullptr) return;
  TorchWeakStorageOps().drop(seen.storage.handle);
  seen.storage.handle = nullptr;
}

SampledValues::~SampledValues() {
  Clear();
  if (table_ != nullptr) munmap(table_, sizeof(Table));
}

bool SampledValues::Map() noexcept {
  if (table_ != nullptr) return true;
  table_ = static_cast<Table*>(MapZeroed(sizeof(Table)));  // zeroed: there are none
  return table_ != nullptr;
}

// Of a write that leaves gaps the older value may still lie in them.
void SampledValues::DropOverwritten(const InputSeen& by) noexcept {
  for (uint32_t i = 0; i < kKept; ++i) {
    if (table_->storages[i] != by.storage.storage) continue;
    const InputSeen& older = table_->values[i].seen;
    if (older.byte_begin < by.byte_begin || older.byte_end > by.byte_end) continue;
    table_->storages[i] = nullptr;
    table_->values[i].Drop();
  }
}

bool SampledValues::Add(const SampledValue& value, SampledValue* oldest, bool* added) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  *added = Map();
  if (!*added) return false;
  if (value.seen.Plain().IsDense()) DropOverwritten(value.seen);
  const auto place = static_cast<uint32_t>(count_++ % kKept);
  const bool replaces = table_->storages[place] != nullptr;
  if (replaces) *oldest = table_->values[place];
  table_->storages[place] = value.seen.storage.storage;
  table_->values[place] = value;
  any_.store(true, std::memory_order_relaxed);
  return replaces;
}

std::vector<SampledValue> SampledValues::Take() {
  std::vector<SampledValue> taken;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (table_ == nullptr || !any_.load(std::memory_order_relaxed)) return taken;
  const auto held = std::count_if(table_->storages, table_->storages + kKept,
                                  [](const void* storage) { return storage != nullptr; });
  taken.reserve(static_cast<size_t>(held));
  for (uint32_t i = 0; i < kKept; ++i) {
    const auto place = static_cast<uint32_t>((count_ + i) % kKept);
    if (table_->storages[place] == nullptr) continue;
    taken.push_back(table_->values[place]);
    table_->storages[place] = nullptr;
  }
  any_.store(false, std::memory_order_relaxed);
  return taken;
}

void SampledValues::Clear() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!any_.exchange(false, std::memory_order_relaxed)) return;
  for (uint32_t i = 0; i < kKept; ++i) {
    if (table_->storages[i] == nullptr) continue;
    table_->storages[i] = nullptr;
    table_->values[i].Drop();
  }
}

}  // namespace nanwatch
