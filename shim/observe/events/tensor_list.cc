// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/tensor_list.h"

#include <algorithm>

#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {

TensorList::TensorList(int8_t gpu, size_t room) : gpu_(gpu), room_(std::min(room, kMax)) {
  tensors_.reserve(room_);
  entries_.reserve(room_);
}

TensorList::~TensorList() {
  const WeakStorageOps ops = TorchWeakStorageOps();
  for (const CheckedTensor& tensor : tensors_) ops.drop(tensor.seen.storage.handle);
}

CheckedTensor* TensorList::AddEntry(const void* data, int64_t numel,
                                    wire::ElementType type) noexcept {
  bytes_ += static_cast<uint64_t>(numel) * ElementBytes(type);
  entries_.push_back(device::MakeEntry(reinterpret_cast<uintptr_t>(data),
                                       static_cast<uint64_t>(numel), static_cast<uint8_t>(type)));
  return &tensors_.emplace_back();
}

void TensorList::Add(const PlainTensor& tensor, wire::Target target,
                     const NamedTensor* named) noexcept {
  CheckedTensor* added = AddEntry(tensor.view.data, tensor.view.numel, tensor.view.type);
  added->seen.Copy(tensor);
  added->target = target;
  added->named = named;
}

void TensorList::Add(const CheckedTensor& tensor) noexcept {
  CheckedTensor* added = AddEntry(tensor.seen.data, tensor.seen.numel, tensor.seen.type);
  *added = tensor;
  added->seen.storage =
      HoldWeakly(static_cast<const c10::StorageImpl*>(tensor.seen.storage.storage));
}

}  // namespace nanwatch
