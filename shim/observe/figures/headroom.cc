// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/figures/headroom.h"

#include <utility>

#include "proto/wire/element_types.h"
#include "shim/check/scan.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/python/names/layer_table.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

// finfo.max, or a mask of it after something was added that rounding did not swallow.
constexpr double kMaskShare = 0.98;

}  // namespace

void Headroom::Record(const OpTraits* op, const Layer* layer, wire::ElementType type,
                      Magnitude magnitude) noexcept {
  const double largest = LargestValue(magnitude, type);
  const double share = largest / wire::LargestOf(type);
  if (share > kMaskShare) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (share <= share_) return;
  share_ = share;
  largest_ = largest;
  op_ = op;
  layer_ = layer;
  type_ = type;
}

double Headroom::Take(wire::TelemetryEntry* into) noexcept {
  Emitter* emitter = segment_.emitter();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (share_ == 0) return 0;
  if (emitter != nullptr) {
    into->known |= wire::TelemetryEntry::kNearLimit;
    into->near_largest = largest_;
    into->near_op = segment_.NameOf(*op_);
    into->near_layer = InternText(*emitter, layer_->path);
    into->near_type = static_cast<uint32_t>(type_);
  }
  return std::exchange(share_, 0);
}

}  // namespace nanwatch
