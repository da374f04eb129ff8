#include "shim/observe/figures/layer_peaks.h"

#include <algorithm>

#include "shim/check/scan.h"

namespace nanwatch {

constinit std::array<LayerPeaks::Slot, kLayersMax> LayerPeaks::peaks_{};
constinit std::atomic<uint32_t> LayerPeaks::used_{0};

void LayerPeaks::Keep(const Layer* layer) noexcept {
  peaks_[layer->index].layer.store(layer, std::memory_order_relaxed);
  uint32_t used = used_.load(std::memory_order_relaxed);
  while (used <= layer->index &&
         !used_.compare_exchange_weak(used, layer->index + 1, std::memory_order_release)) {
  }
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
