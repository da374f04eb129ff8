// SPDX-License-Identifier: Apache-2.0
// Tensors of one GPU, each one run of memory, that one launch checks. Described once: what an
// optimizer keeps is the same for many steps, and the events of all of these share its list.
//
// Threads: filled by one, before it is handed on; then read by any.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <span>
#include <vector>

#include "shim/device/list_launch.h"
#include "shim/observe/events/checked_tensor.h"

namespace nanwatch {

// What is told of one that turns out to be bad.
struct ListedTensor {
  ListedTensor() noexcept {}  // clears nothing: TensorList::Add fills all that is read

  WeakStorage storage;  // the list's
  const c10::TensorImpl* impl;
  const void* data;
  int64_t numel;
  uint64_t byte_begin;
  uint64_t byte_end;
  const NamedTensor* named;
  uint32_t name;
  wire::Target target;
  wire::ElementType type;
  uint8_t ndim;
  int64_t sizes[wire::kShapeDimsMax];  // ndim of them, as of strides
  int64_t strides[wire::kShapeDimsMax];
};

class TensorList final : public c10::intrusive_ptr_target {
 public:
  static constexpr size_t kMax = device::kListMax;
  // All lists together may have so many bytes: of a stream that has come to a stand, hundreds wait.
  static constexpr uint64_t kMemoryMax = uint64_t{128} << 20;

  // For at most `room` tensors, and kMax. Throws std::bad_alloc.
  TensorList(int8_t gpu, size_t room);
  // Lets go of the storages, which it holds weakly.
  ~TensorList() override;
  TensorList(const TensorList&) = delete;
  TensorList& operator=(const TensorList&) = delete;

  // There is room for it, and it lies on this list's GPU.
  void Add(const PlainTensor& tensor, wire::Target target, const NamedTensor* named,
           uint32_t name = 0) noexcept;

  [[nodiscard]] bool HasRoomFor(int8_t gpu) const noexcept {
    return gpu == gpu_ && tensors_.size() < room_;
  }
  [[nodiscard]] int8_t gpu() const noexcept { return gpu_; }
  [[nodiscard]] uint32_t size() const noexcept { return static_cast<uint32_t>(tensors_.size()); }
  // What a launch cuts its work into (device/check_list.h), of all of them.
  [[nodiscard]] uint32_t tiles() const noexcept { return tiles_; }
  [[nodiscard]] uint64_t bytes() const noexcept { return bytes_; }  // of their elements
  [[nodiscard]] uint64_t memory() const noexcept {                  // of the list itself
    return room_ * (sizeof(ListedTensor) + sizeof(device::ListEntry));
  }
  [[nodiscard]] std::span<const ListedTensor> tensors() const noexcept { return tensors_; }
  // For the launch, in the same order.
  [[nodiscard]] std::span<const device::ListEntry> entries() const noexcept { return entries_; }

 private:
  const int8_t gpu_;
  const size_t room_;
  uint64_t bytes_ = 0;
  uint32_t tiles_ = 0;
  std::vector<ListedTensor> tensors_;
  std::vector<device::ListEntry> entries_;
};

using TensorListPtr = c10::intrusive_ptr<TensorList>;

// One of these, none of which was handed on yet, that has room for a tensor of this GPU: the newest,
// or a new one for so many. (The tensors of a model on several GPUs may alternate.) Throws
// std::bad_alloc.
[[nodiscard]] TensorList& ListWithRoom(std::vector<TensorListPtr>* lists, int8_t gpu, size_t room);

}  // namespace nanwatch
