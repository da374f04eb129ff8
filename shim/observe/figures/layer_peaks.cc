// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/figures/layer_peaks.h"

#include <algorithm>

#include "shim/check/scan.h"

namespace nanwatch {
namespace {

// The word of `type` that is `value`, which is not negative.
uint64_t WordOf(wire::ElementType type, double value) noexcept {
  const uint32_t as_float = __builtin_bit_cast(uint32_t, static_cast<float>(value));
  switch (type) {
    case wire::ElementType::kFloat64:
      return __builtin_bit_cast(uint64_t, value);
    case wire::ElementType::kFloat32:
      return as_float;
    case wire::ElementType::kBFloat16:
      return as_float >> 16;
    default:
      break;
  }
  // Of float16, whose exponent has a bias of 15 and float's of 127. Below its normal numbers it is
  // a multiple of 2^-24.
  if (value < 0x1p-14) return static_cast<uint64_t>(value * 0x1p24);
  return (as_float >> 13) - (uint32_t{127 - 15} << 10);
}

}  // namespace

constinit std::array<LayerPeaks::Slot, kLayersMax> LayerPeaks::peaks_{};
constinit std::atomic<uint32_t> LayerPeaks::used_{0};

void LayerPeaks::Keep(const Layer* layer) noexcept {
  peaks_[layer->index].layer.store(layer, std::memory_order_relaxed);
  uint32_t used = used_.load(std::memory_order_relaxed);
  while (used <= layer->index &&
         !used_.compare_exchange_weak(used, layer->index + 1, std::memory_order_release)) {
  }
}

void LayerPeaks::RecordLargest(const Layer* layer, wire::ElementType type,
                               double largest) noexcept {
  Record(layer, type, {WordOf(type, largest), Magnitude::Kind::kLargest});
}

bool LayerPeaks::TakeOne(uint32_t index, Peak* peak) noexcept {
  Slot& slot = peaks_[index];
  bool any = false;
  for (const bool sample : {false, true}) {
    const uint64_t packed = slot.packed[sample].exchange(0, std::memory_order_relaxed);
    if (packed == 0) continue;
    const auto type = static_cast<wire::ElementType>(packed >> kTypeShift);
    const Magnitude magnitude{(packed & ((uint64_t{1} << kTypeShift) - 1)) << kBitsDropped(type),
                              Magnitude::Kind::kLargest};
    const double largest = LargestValue(magnitude, type);
    if (any && type < peak->type) continue;
    const double other = any && type == peak->type ? peak->largest : 0;
    *peak = {slot.layer.load(std::memory_order_relaxed), type, std::max(largest, other), sample};
    any = true;
  }
  return any && peak->layer != nullptr;
}

}  // namespace nanwatch
