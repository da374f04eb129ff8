// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/tensor_list.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "shim/device/check_list.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {

namespace {
std::atomic<uint64_t> memory_of_all{0};
}  // namespace

TensorList::TensorList(int8_t gpu, size_t room) : gpu_(gpu), room_(std::min(room, kMax)) {
  if (memory_of_all.load(std::memory_order_relaxed) + memory() > kMemoryMax) throw std::bad_alloc();
  tensors_.reserve(room_);
  entries_.reserve(room_);
  memory_of_all.fetch_add(memory(), std::memory_order_relaxed);
}

TensorList::~TensorList() {
  memory_of_all.fetch_sub(memory(), std::memory_order_relaxed);
  const WeakStorageOps ops = TorchWeakStorageOps();
  for (const ListedTensor& tensor : tensors_) ops.drop(tensor.storage.handle);
}

void TensorList::Add(const PlainTensor& tensor, wire::Target target, const NamedTensor* named,
                     uint32_t name) noexcept {
  const TensorView& view = tensor.view;
  bytes_ += BytesOf(view);
  entries_.push_back(device::MakeEntry(reinterpret_cast<uintptr_t>(view.data),
                                       static_cast<uint64_t>(view.numel),
                                       static_cast<uint8_t>(view.type)));
  tiles_ += device::TilesOf(entries_.back());
  ListedTensor& added = tensors_.emplace_back();
  added.storage = HoldWeakly(tensor.storage);
  added.impl = tensor.impl;
  added.data = view.data;
  added.numel = view.numel;
  added.byte_begin = tensor.byte_begin;
  added.byte_end = tensor.byte_end;
  added.named = named;
  added.name = name;
  added.target = target;
  added.type = view.type;
  added.ndim = static_cast<uint8_t>(view.ndim);
  for (int i = 0; i < view.ndim; ++i) {
    added.sizes[i] = view.sizes[i];
    added.strides[i] = view.strides[i];
  }
}

TensorList& ListWithRoom(std::vector<TensorListPtr>* lists, int8_t gpu, size_t room) {
  const auto found = std::find_if(lists->rbegin(), lists->rend(), [gpu](const TensorListPtr& list) {
    return list->HasRoomFor(gpu);
  });
  if (found != lists->rend()) return **found;
  return *lists->emplace_back(c10::make_intrusive<TensorList>(gpu, room));
}

}  // namespace nanwatch
