// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/thread/seen_inputs.h"

#include "shim/observe/torch/storage_data.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {

bool HasGpuInput(const ThreadState* thread, const Frame& frame) noexcept {
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    if (thread->inputs[frame.inputs_begin + i].gpu >= 0) return true;
  }
  return false;
}

void DropInputs(ThreadState* thread, Frame& frame) noexcept {
  if (frame.inputs_count == 0) return;  // inputs_begin says nothing then
  const WeakStorageOps ops = TorchWeakStorageOps();
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    ops.drop(thread->inputs[frame.inputs_begin + i].storage.handle);
  }
  thread->inputs_used = frame.inputs_begin;
  frame.inputs_count = 0;
}

bool IsAlive(const InputSeen& input) noexcept {
  if (input.counted != nullptr) return true;
  if (TorchWeakStorageOps().expired(input.storage.handle)) return false;
  // The storage may have been resized under the op.
  const auto* storage = static_cast<const c10::StorageImpl*>(input.storage.storage);
  const auto* base = static_cast<const char*>(DataOf(*storage));
  return base != nullptr && base + input.byte_begin == input.data &&
         input.byte_end <= storage->nbytes();
}

}  // namespace nanwatch
