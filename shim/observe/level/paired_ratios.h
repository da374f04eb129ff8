// SPDX-License-Identifier: Apache-2.0
// How much longer steps take with something than without it: ratios of times that were measured
// side by side, and what can be said of their median.
//
// No distribution is assumed: the interval is given by two of the ratios themselves, in order of
// size, so that the true median lies between them with at least 95 %. Of 12 pairs these are the
// third and the tenth (96.1 %), of 24 the seventh and the eighteenth (97.7 %).
//
// Pure: no clock, no torch. One caller at a time.
#pragma once

#include <array>
#include <cstdint>

namespace nanwatch {

class PairedRatios {
 public:
  static constexpr uint32_t kPairsMin = 12;  // before, nothing is said
  static constexpr uint32_t kPairsMax = 24;  // the newest are kept

  // Of a time with to a time without. Ignored unless it is a positive number.
  void Add(double ratio) noexcept;
  void Reset() noexcept { count_ = next_ = 0; }

  // In percent: 1.5 for a ratio of 1.015. Valid where there are pairs.
  struct Figure {
    uint32_t pairs = 0;  // 0, or at least kPairsMin
    double median = 0;
    double low = 0;
    double high = 0;
  };
  [[nodiscard]] Figure Read() const noexcept;

  // The place, from 1, of the ratio that bounds the interval from below; the upper bound has the
  // same place from the other end.
  [[nodiscard]] static uint32_t PlaceOfLow(uint32_t pairs) noexcept;

 private:
  std::array<double, kPairsMax> ratios_{};
  uint32_t count_ = 0;
  uint32_t next_ = 0;
};

}  // namespace nanwatch
