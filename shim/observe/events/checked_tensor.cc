// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/checked_tensor.h"

#include "shim/observe/events/fact_sink.h"
#include "shim/observe/torch/weak_storage.h"

namespace nanwatch {

GpuTensors::~GpuTensors() {
  for (const CheckedTensor& handed : list_) {
    TorchWeakStorageOps().drop(handed.seen.storage.handle);
  }
}

void GpuTensors::Reserve(size_t count) noexcept try {
  list_.reserve(count);
} catch (...) {  // what does not fit then is counted
}

void GpuTensors::Add(const PlainTensor& tensor, wire::Target target, const NamedTensor* named,
                     uint32_t name) noexcept try {
  if (!late_.Begin() || tensor.view.ndim > wire::kShapeDimsMax) {
    if (counts_) ++thread_->counters.unchecked[static_cast<int>(wire::Unchecked::kOtherDevice)];
    return;
  }
  CheckedTensor& handed = list_.emplace_back();
  handed.seen.Copy(tensor);
  handed.target = target;
  handed.named = named;
  handed.name = name;
} catch (...) {
  ++thread_->counters.unchecked[static_cast<int>(wire::Unchecked::kGpuBusy)];
}

}  // namespace nanwatch
