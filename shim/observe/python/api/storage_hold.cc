// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/api/storage_hold.h"

#include <cstring>

namespace nanwatch {

const void* PythonObjectIn(const c10::impl::PyObjectSlot* slot) noexcept {
  // {interpreter, object} or {object}; older versions mark ownership in the low bit.
  constexpr size_t kSlotSize = sizeof(c10::impl::PyObjectSlot);
  static_assert(kSlotSize == 8 || kSlotSize == 16);
  uintptr_t word;
  std::memcpy(&word, reinterpret_cast<const unsigned char*>(slot) + kSlotSize - sizeof word,
              sizeof word);
  return reinterpret_cast<const void*>(word & ~uintptr_t{1});
}

c10::intrusive_ptr<c10::StorageImpl> TakeStorage(const c10::StorageImpl* weakly_held) noexcept {
  if (weakly_held == nullptr) return {};
  auto* storage = const_cast<c10::StorageImpl*>(weakly_held);
  const size_t holders = c10::raw::intrusive_ptr::use_count(storage);
  if (holders == 0 || (holders == 1 && PythonObjectIn(storage->pyobj_slot()) != nullptr)) return {};
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim(c10::raw::weak_intrusive_ptr::lock(storage));
}

}  // namespace nanwatch
