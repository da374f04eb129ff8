// SPDX-License-Identifier: Apache-2.0
// Where backward passes begin: the ops, by their layers, that make losses. Threads: any.
#pragma once

#include <cstdint>
#include <mutex>

namespace nanwatch {

class LossRoots {
 public:
  // True if a pass began at a value of this op in this layer before (name ids).
  [[nodiscard]] bool Has(uint32_t op, uint32_t layer) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    return HasHeld(op, layer);
  }
  void Record(uint32_t op, uint32_t layer) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!HasHeld(op, layer) && count_ < kRootsMax) roots_[count_++] = {op, layer};
  }

 private:
  static constexpr int kRootsMax = 32;
  struct Root {
    uint32_t op;
    uint32_t layer;
  };

  [[nodiscard]] bool HasHeld(uint32_t op, uint32_t layer) const noexcept {
    for (int i = 0; i < count_; ++i) {
      if (roots_[i].op == op && roots_[i].layer == layer) return true;
    }
    return false;
  }

  std::mutex mutex_;
  Root roots_[kRootsMax] = {};
  int count_ = 0;
};

}  // namespace nanwatch
