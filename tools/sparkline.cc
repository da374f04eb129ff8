// SPDX-License-Identifier: Apache-2.0
#include "tools/sparkline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string_view>

namespace nanwatch {
namespace {

std::string_view SparkLevel(size_t level, bool unicode) {
  constexpr std::array<std::string_view, 8> kUnicode = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::array<std::string_view, 8> kAscii = {"_", ".", "-", "~", "=", "+", "*", "#"};
  return unicode ? kUnicode[level] : kAscii[level];
}

}  // namespace

std::string Sparkline(const std::vector<double>& values, size_t columns, bool unicode) {
  const size_t count = std::min(values.size(), columns);
  const auto begin = values.end() - static_cast<ptrdiff_t>(count);
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (auto value = begin; value != values.end(); ++value) {
    if (!std::isfinite(*value)) continue;
    low = std::min(low, *value);
    high = std::max(high, *value);
  }
  std::string line;
  for (auto value = begin; value != values.end(); ++value) {
    if (!std::isfinite(*value)) {
      line += '!';
      continue;
    }
    // Halved, because the difference of two doubles may be more than a double holds.
    const double part = high > low ? (*value / 2 - low / 2) / (high / 2 - low / 2) : 0.5;
    line += SparkLevel(std::min<size_t>(static_cast<size_t>(part * 8), 7), unicode);
  }
  return line;
}

}  // namespace nanwatch
