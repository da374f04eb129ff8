// SPDX-License-Identifier: Apache-2.0
// The largest result of each layer's forward ops since it was last asked for; of those on a GPU,
// since the step of a snapshot began (parameter_stats.h).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "proto/wire/segment.h"
#include "shim/check/magnitude.h"
#include "shim/observe/python/names/layer_table.h"

namespace nanwatch {

class LayerPeaks {
 public:
  struct Peak {
    const Layer* layer;
    wire::ElementType type;
    double largest;  // magnitude
    bool at_least;   // of some results only a sample was looked at
  };

  // Any thread, also several at once: of two that come together one may be missed. Of a layer that
  // has results of several types the narrowest counts.
  [[gnu::always_inline]] static void Record(const Layer* layer, wire::ElementType type,
                                            Magnitude magnitude) noexcept {
    const bool sample = magnitude.kind == Magnitude::Kind::kAtLeast;
    const uint64_t packed =
        uint64_t{static_cast<uint8_t>(type)} << kTypeShift | magnitude.bits >> kBitsDropped(type);
    std::atomic<uint64_t>& kept = peaks_[layer->index].packed[sample];
    if (__builtin_expect(packed > kept.load(std::memory_order_relaxed), 0)) {
      kept.store(packed, std::memory_order_relaxed);
      Keep(layer);
    }
  }

  // The same where the magnitude is known as a number, which `type` holds exactly: float64,
  // float32, bfloat16 or float16.
  static void RecordLargest(const Layer* layer, wire::ElementType type, double largest) noexcept;

  // Calls `tell` for each layer that was noted, and begins anew. One caller at a time.
  template <class Tell>
  static void Take(Tell tell) noexcept {
    const uint32_t end = used_.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < end; ++i) {
      Peak peak;
      if (TakeOne(i, &peak)) tell(peak);
    }
  }

 private:
  static constexpr int kTypeShift = 56;
  struct Slot {
    std::atomic<uint64_t> packed[2];  // exact, and of samples
    std::atomic<const Layer*> layer;
  };
  // Of 64 bits the lowest make room for the type; words of narrower types fit as they are.
  static constexpr int kBitsDropped(wire::ElementType type) noexcept {
    return type == wire::ElementType::kFloat64 ? 64 - kTypeShift : 0;
  }
  static void Keep(const Layer* layer) noexcept;
  static bool TakeOne(uint32_t index, Peak* peak) noexcept;

  // Hidden where they are declared, too: on the path of every op.
  [[gnu::visibility("hidden")]] static std::array<Slot, kLayersMax>
      peaks_;  // pages that no layer needs are never touched
  [[gnu::visibility("hidden")]] static std::atomic<uint32_t> used_;
};

}  // namespace nanwatch
