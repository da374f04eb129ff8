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
  if (list_.empty()) list_.reserve(expected_);
  CheckedTensor& handed = list_.emplace_back();
  handed.seen.Copy(tensor);
  handed.target = target;
  handed.named = named;
  handed.name = name;
} catch (...) {
  CountBusy();
}

void GpuTensors::AddRun(const PlainTensor& tensor, wire::Target target,
                        const NamedTensor* named) noexcept try {
  if (Accepts(tensor)) RunsOf(tensor.gpu).Add(tensor, target, named);
} catch (...) {
  CountBusy();
}

// The newest first: the tensors of a model on several GPUs may alternate.
TensorList& GpuTensors::RunsOf(int8_t gpu) {
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
