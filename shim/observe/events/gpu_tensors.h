// SPDX-License-Identifier: Apache-2.0
// Gathers tensors on a GPU that are handed over together to be checked.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shim/observe/events/checked_tensor.h"
#include "shim/observe/events/tensor_list.h"

namespace nanwatch {

class LateFacts;

// Holds their storages weakly while it lives.
class GpuTensors {
 public:
  // `counts`: what cannot be checked is counted as unchecked.
  GpuTensors(LateFacts& late, ThreadState* thread, bool counts = true) noexcept
      : late_(late), thread_(thread), counts_(counts) {}
  ~GpuTensors();
  GpuTensors(const GpuTensors&) = delete;
  GpuTensors& operator=(const GpuTensors&) = delete;

  // So many will come.
  void Reserve(size_t count) noexcept { expected_ = count; }
  void Add(const PlainTensor& tensor, wire::Target target, const NamedTensor* named,
           uint32_t name = 0) noexcept;
  // The same for a list: what is one run of memory becomes a part of `runs`, in its order.
  void AddListed(const PlainTensor& tensor, wire::Target target, const NamedTensor* named) noexcept;
  // The same of what is known to be one, as what ReadDenseOnGpu has described.
  void AddRun(const PlainTensor& tensor, wire::Target target, const NamedTensor* named) noexcept;

  [[nodiscard]] std::span<const CheckedTensor> list() const noexcept { return list_; }
  [[nodiscard]] std::span<const TensorListPtr> runs() const noexcept { return runs_; }

 private:
  // Whether it can be checked; else it is counted.
  [[nodiscard]] bool Accepts(const PlainTensor& tensor) noexcept;
  void CountBusy() noexcept;
  [[nodiscard]] size_t Room() const noexcept;

  LateFacts& late_;
  ThreadState* thread_;
  const bool counts_;
  size_t expected_ = 0;
  std::vector<CheckedTensor> list_;
  std::vector<TensorListPtr> runs_;
  TensorList* newest_ = nullptr;  // the one of these that was added to last
};

}  // namespace nanwatch
