// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/names/named_reading.h"

#include <algorithm>

#include "shim/check/scan.h"
#include "shim/observe/torch/alignment.h"
#include "shim/observe/torch/storage_data.h"

namespace nanwatch {

NamedReading::NamedReading(const PythonNames& names, const NamedTensor& named) noexcept
    : held_(names.Read(named)) {
  if (!held_ || !held_->dense || held_->data == nullptr || held_->numel == 0 ||
      !(held_->device.is_cpu() || held_->device.is_cuda())) {
    return;
  }
  const wire::ElementType type = ElementTypeOf(held_->dtype);
  if (type == wire::ElementType::kNone) return;
  if (held_->device.is_cuda() && IsMisaligned(held_->data, type)) return;
  const auto* base = static_cast<const char*>(DataOf(*held_->storage));
  tensor_.storage = held_->storage.get();
  tensor_.view = TensorView{held_->data, type, 1, &held_->numel, &stride_, held_->numel};
  tensor_.byte_begin = static_cast<uint64_t>(static_cast<const char*>(held_->data) - base);
  tensor_.byte_end = tensor_.byte_begin + static_cast<uint64_t>(held_->numel) * ElementBytes(type);
  tensor_.gpu = held_->device.is_cpu() ? int8_t{-1} : std::max<int8_t>(held_->device.index(), 0);
  described_ = true;
}

bool NamedReading::IsBad() const noexcept {
  return *this && HasNonFinite(tensor_.view.type, tensor_.view.data,
                               static_cast<size_t>(tensor_.view.numel));
}

}  // namespace nanwatch
