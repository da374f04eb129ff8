// SPDX-License-Identifier: Apache-2.0
// Weak handles of storages: they keep a storage's object, not its memory, so that an address that
// is used again is not taken for the storage that was there before.
#pragma once

#include <c10/core/StorageImpl.h>

#include "shim/classify/bad_values.h"

namespace nanwatch {

// A new weak reference. Whoever holds it gives it back by TorchWeakStorageOps().drop.
WeakStorage HoldWeakly(const c10::StorageImpl* storage) noexcept;
WeakStorageOps TorchWeakStorageOps() noexcept;

}  // namespace nanwatch
