// SPDX-License-Identifier: Apache-2.0
// Weak holds on storages of libtorch's, as the observer has them. Weak symbols: they give way to
// the observer's own where those are linked.
#include <c10/core/StorageImpl.h>

#include "shim/classify/bad_values.h"

namespace nanwatch {

[[gnu::weak]] WeakStorage HoldWeakly(const c10::StorageImpl* storage) noexcept {
  auto* held = const_cast<c10::StorageImpl*>(storage);
  c10::raw::weak_intrusive_ptr::incref(held);
  return {storage, held};
}

[[gnu::weak]] WeakStorageOps TorchWeakStorageOps() noexcept {
  return {[](void* handle) noexcept {
            return c10::raw::intrusive_ptr::use_count(static_cast<c10::StorageImpl*>(handle)) == 0;
          },
          [](void* handle) noexcept {
            c10::raw::weak_intrusive_ptr::decref(static_cast<c10::StorageImpl*>(handle));
          }};
}

}  // namespace nanwatch
