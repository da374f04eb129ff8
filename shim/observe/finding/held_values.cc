// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/held_values.h"

#include "shim/observe/python/api/storage_hold.h"
#include "shim/observe/torch/storage_data.h"

namespace nanwatch {

HeldValues::HeldValues(BadValues& values, int limit,
                       bool (*fits)(const void* context, const BadEntry& entry),
                       const void* context)
    : limit_(limit), fits_(fits), context_(context) {
  values.ForEach(&Take, this);
}

void HeldValues::Take(void* held, const BadEntry& entry) {
  auto& self = *static_cast<HeldValues*>(held);
  if (!self.fits_(self.context_, entry)) return;
  if (self.count_ == self.limit_) {
    self.all_ = false;
    return;
  }
  self.entries_[self.count_] = entry;
  self.storages_[self.count_++] =
      TakeStorage(static_cast<const c10::StorageImpl*>(entry.storage.storage));
}

const unsigned char* HeldValues::MemoryOf(int i) const noexcept {
  const c10::intrusive_ptr<c10::StorageImpl>& storage = storages_[i];
  const bool readable = storage && storage->device_type() == c10::DeviceType::CPU &&
                        entries_[i].byte_end <= storage->nbytes();
  const void* data = readable ? DataOf(*storage) : nullptr;
  return data == nullptr ? nullptr
                         : static_cast<const unsigned char*>(data) + entries_[i].byte_begin;
}

}  // namespace nanwatch
