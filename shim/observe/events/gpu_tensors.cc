// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/gpu_tensors.h"

#include <algorithm>

#include "shim/observe/events/fact_sink.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {

GpuTensors::~GpuTensors() {
  for (const CheckedTensor& handed : list_) {
    TorchWeakStorageOps().drop(handed.seen.storage.handle);
  }
}

bool GpuTensors::Accepts(const PlainTensor& tensor) noexcept {
  if (late_.Begin() && tensor.view.ndim <= wire::kShapeDimsMax) return true;
  if (counts_) ++thread_->counters.unchecked[static_cast<int>(wire::Unchecked::kOtherDevice)];
  return false;
}

void GpuTensors::CountBusy() noexcept {
  ++thread_->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)];
}

void GpuTensors::Add(const PlainTensor& tensor, wire::Target target, const NamedTensor* named,
                     uint32_t name) noexcept try {
  if (!Accepts(tensor)) return;
  CheckedTensor& handed = list_.emplace_back();
  handed.seen.Copy(tensor);
  handed.target = target;
  handed.named = named;
  handed.name = name;
} catch (...) {
  CountBusy();
}

void GpuTensors::AddListed(const PlainTensor& tensor, wire::Target target,
                           const NamedTensor* named) noexcept {
  if (tensor.impl->is_non_overlapping_and_dense()) return AddRun(tensor, target, named);
  Add(tensor, target, named);
}

void GpuTensors::AddRun(const PlainTensor& tensor, wire::Target target,
                        const NamedTensor* named) noexcept try {
  if (!Accepts(tensor)) return;
  if (newest_ == nullptr || !newest_->HasRoomFor(tensor.gpu)) {
    newest_ = &ListWithRoom(&runs_, tensor.gpu, Room());
  }
  newest_->Add(tensor, target, named);
} catch (...) {
  CountBusy();
}

// How many tensors a new list is for.
size_t GpuTensors::Room() const noexcept {
  constexpr size_t kFew = 16;
  size_t held = 0;
  for (const TensorListPtr& list : runs_) held += list->size();
  return expected_ > held ? std::max(expected_ - held, kFew) : TensorList::kMax;
}

}  // namespace nanwatch
