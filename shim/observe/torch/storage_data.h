// SPDX-License-Identifier: Apache-2.0
// Where a storage's memory is, and where it came from, asked without an exception.
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

// Whether the memory was handed to torch with its values in it: by numpy or another library, a file
// that is mapped, torch.load. All of these make a storage without an allocator (TensorMaker,
// THPStorage_newSharedFd, PyTorchStreamReader's get_storage_from_record). What has one was given to
// torch's own factories empty, and something has written it since.
inline bool CameWithValues(const c10::StorageImpl& storage) noexcept {
  return storage.allocator() == nullptr;
}

}  // namespace nanwatch
