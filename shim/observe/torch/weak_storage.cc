// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/torch/weak_storage.h"

#include <c10/util/intrusive_ptr.h>

namespace nanwatch {

WeakStorage HoldWeakly(const c10::StorageImpl* storage) noexcept {
  auto* mutable_storage = const_cast<c10::StorageImpl*>(storage);
  c10::raw::weak_intrusive_ptr::incref(mutable_storage);
  return {storage, mutable_storage};
}

WeakStorageOps TorchWeakStorageOps() noexcept {
  return {[](void* handle) noexcept {
            return c10::raw::intrusive_ptr::use_count(static_cast<c10::StorageImpl*>(handle)) == 0;
          },
          [](void* handle) noexcept {
            c10::raw::weak_intrusive_ptr::decref(static_cast<c10::StorageImpl*>(handle));
          }};
}

}  // namespace nanwatch
