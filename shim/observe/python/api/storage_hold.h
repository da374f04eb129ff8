// SPDX-License-Identifier: Apache-2.0
// Taking hold of a storage that is only known weakly, without ever making torch take the GIL.
#pragma once

#include <c10/core/StorageImpl.h>

namespace nanwatch {

// The Python object that a tensor's or storage's slot holds; null for none.
const void* PythonObjectIn(const c10::impl::PyObjectSlot* slot) noexcept;

// Takes hold of a storage of which the caller has a weak reference. Null when it is gone, and where
// nothing but its Python object holds it: torch would take the GIL to share it.
c10::intrusive_ptr<c10::StorageImpl> TakeStorage(const c10::StorageImpl* weakly_held) noexcept;

}  // namespace nanwatch
