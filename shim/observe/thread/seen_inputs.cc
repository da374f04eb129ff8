// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/thread/seen_inputs.h"

#include <cstring>

#include "shim/observe/torch/op_families.h"
#include "shim/observe/torch/storage_data.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {

bool HasGpuInput(const ThreadState* thread, const Frame& frame) noexcept {
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    if (thread->inputs[frame.inputs_begin + i].gpu >= 0) return true;
  }
  return false;
}

namespace {

// Besides what it writes.
bool IsGivenBad(const ThreadState* thread, const Frame& frame) noexcept {
  for (uint32_t i = 0; i < frame.inputs_count; ++i) {
    const InputSeen& input = thread->inputs[frame.inputs_begin + i];
    if (input.argument != 0 && input.kinds != 0) return true;
  }
  return false;
}

}  // namespace

bool PutsBad(const ThreadState* thread, const Frame& frame) noexcept {
  return frame.inputs_seen && frame.op->in_place && (frame.op->families & kMoves) != 0 &&
         IsGivenBad(thread, frame);
}

bool AddsBad(const ThreadState* thread, const Frame& frame) noexcept {
  return frame.inputs_seen && std::strcmp(frame.op->name, "aten::add_") == 0 &&
         IsGivenBad(thread, frame);
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

void InputSeen::Copy(const PlainTensor& plain) noexcept {
  storage = HoldWeakly(plain.storage);
  impl = plain.impl;
  data = plain.view.data;
  numel = plain.view.numel;
  type = plain.view.type;
  ndim = static_cast<uint8_t>(plain.view.ndim);
  for (int i = 0; i < plain.view.ndim; ++i) {
    sizes[i] = plain.view.sizes[i];
    strides[i] = plain.view.strides[i];
  }
  byte_begin = plain.byte_begin;
  byte_end = plain.byte_end;
  gpu = plain.gpu;
  counted = plain.view.counted;
}

void ForgetBad(BadValues& bad_values, const InputSeen& written) noexcept {
  bad_values.Clear(written.storage.storage, written.byte_begin, written.byte_end,
                   written.Plain().IsDense());
}

}  // namespace nanwatch
