// SPDX-License-Identifier: Apache-2.0
// What each process of a job did, step by step, in one character a column.
//
// Pure, no state, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/report/page/run_series.h"

namespace nanwatch {

// Of several steps in one column the worst, in the order of this list from its end.
inline constexpr char kStripNothing = '.';   // no step of the process is stored there
inline constexpr char kStripWatched = 'w';   // watched, nothing bad
inline constexpr char kStripIdle = 'i';      // not watched
inline constexpr char kStripHarmless = 'h';  // an op wrote a non-finite value that went no further
inline constexpr char kStripSkipped = 's';   // a GradScaler skipped the update
inline constexpr char kStripBad = 'b';       // loss, gradients or parameters were not finite

struct StripRow {
  std::string run;
  int rank = 0;
  size_t steps = 0;
  int64_t first_bad = -1;  // -1: none
  std::string cells;
};

struct RankStrip {
  int64_t first_step = 0;
  int64_t steps_per_column = 1;
  std::vector<StripRow> rows;  // by rank
  size_t rows_left_out = 0;
};

[[nodiscard]] RankStrip RankStripOf(const std::vector<RunSeries>& runs, size_t columns_max,
                                    size_t rows_max);

}  // namespace nanwatch
