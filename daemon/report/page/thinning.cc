// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/page/thinning.h"

#include <algorithm>
#include <cmath>

namespace nanwatch {
namespace {

void Add(const SeriesValue& value, SeriesColumn& column) {
  column.last_x = value.x;
  if (!std::isfinite(value.value)) {
    ++column.non_finite;
    return;
  }
  const bool is_first = column.finite++ == 0;
  column.low = is_first ? value.value : std::min(column.low, value.value);
  column.high = is_first ? value.value : std::max(column.high, value.value);
  // Without a sum, which could overflow.
  column.mean += (value.value / static_cast<double>(column.finite)) -
                 (column.mean / static_cast<double>(column.finite));
}

}  // namespace

int64_t ColumnWidth(int64_t first_x, int64_t last_x, size_t columns_max) {
  // Unsigned: any two numbers of a segment have a distance.
  const uint64_t distance = static_cast<uint64_t>(last_x) - static_cast<uint64_t>(first_x);
  return static_cast<int64_t>(distance / std::max<size_t>(columns_max, 1) + 1);
}

std::vector<SeriesColumn> Thin(std::vector<SeriesValue> values, size_t columns_max) {
  std::vector<SeriesColumn> columns;
  if (values.empty()) return columns;
  std::stable_sort(values.begin(), values.end(),
                   [](const SeriesValue& a, const SeriesValue& b) { return a.x < b.x; });
  const int64_t first = values.front().x;
  const auto width = static_cast<uint64_t>(ColumnWidth(first, values.back().x, columns_max));
  uint64_t at = 0;
  for (const SeriesValue& value : values) {
    const uint64_t column = (static_cast<uint64_t>(value.x) - static_cast<uint64_t>(first)) / width;
    if (columns.empty() || column != at) columns.push_back({.x = value.x});
    at = column;
    Add(value, columns.back());
  }
  return columns;
}

}  // namespace nanwatch
