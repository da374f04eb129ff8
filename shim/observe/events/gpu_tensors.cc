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
  if (newest_ == nullptr || !newest_->HasRoomFor(tensor.gpu)) newest_ = &NewRunsOf(tensor.gpu);
  newest_->Add(tensor, target, named);
} catch (...) {
  CountBusy();
}

// The tensors of a model on several GPUs may alternate.
TensorList& GpuTensors::NewRunsOf(int8_t gpu) {
  const auto found = std::find_if(runs_.rbegin(), runs_.rend(), [gpu](const TensorListPtr& list) {
    return list->HasRoomFor(gpu);
  });
  if (found != runs_.rend()) return **found;
  constexpr size_t kFew = 16;
  size_t held = 0;
  for (const TensorListPtr& list : runs_) held += list->size();
  const size_t room = expected_ > held ? std::max(expected_ - held, kFew) : TensorList::kMax;
  return *runs_.emplace_back(c10::make_intrusive<TensorList>(gpu, room));
}

}  // namespace nanwatch
