// SPDX-License-Identifier: Apache-2.0
// The last values of something, their median and the largest of them.
//
// Pure. One caller at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace nanwatch {

template <uint32_t kKept>
class RecentOf {
 public:
  void Add(double value) noexcept {
    values_[next_] = value;
    next_ = (next_ + 1) % kKept;
    count_ = std::min(count_ + 1, kKept);
  }
  [[nodiscard]] uint32_t count() const noexcept { return count_; }
  // 0 where there is none.
  [[nodiscard]] double Median() const noexcept {
    if (count_ == 0) return 0;
    std::array<double, kKept> sorted = values_;
    auto* const middle = sorted.begin() + count_ / 2;
    std::nth_element(sorted.begin(), middle, sorted.begin() + count_);
    return *middle;
  }
  [[nodiscard]] double Largest() const noexcept {
    return count_ == 0 ? 0 : *std::max_element(values_.begin(), values_.begin() + count_);
  }

 private:
  std::array<double, kKept> values_{};
  uint32_t count_ = 0;  // saturates
  uint32_t next_ = 0;
};

using Recent = RecentOf<48>;

}  // namespace nanwatch
