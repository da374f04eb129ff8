// SPDX-License-Identifier: Apache-2.0
// Where a storage's memory is, asked without an exception.
#pragma once

#include <c10/core/StorageImpl.h>

namespace nanwatch {

// Null where there is none, and where torch would throw: the outputs of a CUDA graph that
// torch.compile has replayed since (mode "reduce-overhead") may not be read any more, but are still
// viewed and detached by programs that run well.
inline const void* DataOf(const c10::StorageImpl& storage) noexcept {
  try {
    return storage.data_ptr().get();
  } catch (...) {
    return nullptr;
  }
}

}  // namespace nanwatch
