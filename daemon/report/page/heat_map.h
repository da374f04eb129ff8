// SPDX-License-Identifier: Apache-2.0
// Headroom, layer by layer and step by step: how many times larger than the largest result of a
// layer the largest number of its type is.
//
// Pure, no state, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/report/page/run_series.h"
#include "verdict.pb.h"

namespace nanwatch {

// A cell is one character. '0' is a headroom of 1 or less: it overflows. '1' is above 1 and less than
// the square root of 2, and each one after it (in ASCII) a factor of that root more. kHeatUnknown
// where nothing is stored.
inline constexpr char kHeatLeast = '0';
inline constexpr char kHeatMost = '0' + 63;
inline constexpr char kHeatUnknown = '!';

struct HeatRow {
  std::string layer;
  double least = 0;         // headroom, of all its cells
  int64_t least_step = -1;  // when that was
  double newest = 0;
  std::string cells;  // one a column
};

struct HeatMap {
  std::vector<int64_t> steps;    // where each column begins
  int64_t steps_per_column = 1;  // columns without a reading are left out
  std::vector<HeatRow> rows;     // in the order of the model
  size_t rows_left_out = 0;      // those with the most headroom
};

// From the snapshots of one run and its steps. Empty where neither has a layer.
[[nodiscard]] HeatMap HeatMapOf(const StatsReport& stats, const RunSeries& series,
                                size_t columns_max, size_t rows_max);

}  // namespace nanwatch
