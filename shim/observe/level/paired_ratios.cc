// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/level/paired_ratios.h"

#include <algorithm>
#include <cmath>

namespace nanwatch {

void PairedRatios::Add(double ratio) noexcept {
  if (!(ratio > 0) || !std::isfinite(ratio)) return;
  ratios_[next_] = ratio;
  next_ = (next_ + 1) % kPairsMax;
  count_ = std::min(count_ + 1, kPairsMax);
}

// The k-th smallest of n lies above the true median if fewer than k lie below it; each does with
// probability 1/2. The same on the other side.
uint32_t PairedRatios::PlaceOfLow(uint32_t pairs) noexcept {
  constexpr double kMissMax = 0.05;
  double exactly = std::ldexp(1.0, -pairs);  // none of them lies below
  double fewer = 0;
  uint32_t place = 0;
  for (uint32_t k = 0; k < pairs; ++k) {
    fewer += exactly;
    if (2 * fewer > kMissMax) break;
    place = k + 1;
    exactly *= static_cast<double>(pairs - k) / static_cast<double>(k + 1);
  }
  return place;
}

PairedRatios::Figure PairedRatios::Read() const noexcept {
  if (count_ < kPairsMin) return {};
  std::array<double, kPairsMax> sorted = ratios_;
  std::sort(sorted.begin(), sorted.begin() + count_);
  const auto percent = [](double ratio) { return 100 * (ratio - 1); };
  const uint32_t place = PlaceOfLow(count_);
  const double middle = (sorted[(count_ - 1) / 2] + sorted[count_ / 2]) / 2;
  return {count_, percent(middle), percent(sorted[place - 1]), percent(sorted[count_ - place])};
}

}  // namespace nanwatch
