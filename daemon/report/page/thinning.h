// SPDX-License-Identifier: Apache-2.0
// A series of any length in as many columns as a picture has pixels. Each column keeps its smallest,
// its largest and its mean value, so no peak is lost, and counts what was not finite.
//
// Pure, no state, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nanwatch {

struct SeriesValue {
  int64_t x = 0;
  double value = 0;
};

struct SeriesColumn {
  int64_t x = 0;  // of its first value
  int64_t last_x = 0;
  // Of its finite values; meaningless when there are none.
  double low = 0, high = 0, mean = 0;
  uint64_t finite = 0;
  uint64_t non_finite = 0;

  bool operator==(const SeriesColumn&) const = default;
};

// How many x go into one column: 1 while `first_x` to `last_x` fit into `columns_max` (at least 1).
[[nodiscard]] int64_t ColumnWidth(int64_t first_x, int64_t last_x, size_t columns_max);

// By x. `values` in any order: those of several ranks that share an x share its column.
[[nodiscard]] std::vector<SeriesColumn> Thin(std::vector<SeriesValue> values, size_t columns_max);

}  // namespace nanwatch
