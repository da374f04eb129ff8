// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/page/rank_strip.h"

#include <algorithm>
#include <string_view>

#include "daemon/report/page/thinning.h"

namespace nanwatch {
namespace {

constexpr char kByWeight[] = {kStripNothing,  kStripWatched, kStripIdle,
                              kStripHarmless, kStripSkipped, kStripBad};

size_t WeightOf(char cell) { return std::string_view(kByWeight, sizeof kByWeight).find(cell); }

char CellOf(const StepPoint& point) {
  if (point.skipped) return kStripSkipped;
  if (point.bad) return kStripBad;
  if (point.non_finite) return kStripHarmless;
  return point.level == "idle" ? kStripIdle : kStripWatched;
}

StripRow RowOf(const RunSeries& run, const RankStrip& strip, size_t columns) {
  StripRow row = {.run = run.run,
                  .rank = run.rank,
                  .steps = run.points.size(),
                  .first_bad = -1,
                  .cells = std::string(columns, kStripNothing)};
  for (const StepPoint& point : run.points) {
    const char now = CellOf(point);
    if (now == kStripBad && row.first_bad < 0) row.first_bad = point.x;
    char& cell =
        row.cells[static_cast<size_t>((point.x - strip.first_step) / strip.steps_per_column)];
    if (WeightOf(now) > WeightOf(cell)) cell = now;
  }
  return row;
}

}  // namespace

RankStrip RankStripOf(const std::vector<RunSeries>& runs, size_t columns_max, size_t rows_max) {
  RankStrip strip;
  std::vector<const RunSeries*> shown;
  for (const RunSeries& run : runs) {
    if (!run.points.empty()) shown.push_back(&run);
  }
  if (shown.empty()) return strip;
  std::stable_sort(shown.begin(), shown.end(),
                   [](const RunSeries* a, const RunSeries* b) { return a->rank < b->rank; });
  if (shown.size() > rows_max) {
    strip.rows_left_out = shown.size() - rows_max;
    shown.resize(rows_max);
  }
  strip.first_step = shown.front()->points.front().x;
  int64_t last = strip.first_step;
  for (const RunSeries* run : shown) {
    strip.first_step = std::min(strip.first_step, run->points.front().x);
    last = std::max(last, run->points.back().x);
  }
  strip.steps_per_column = ColumnWidth(strip.first_step, last, columns_max);
  const auto columns = static_cast<size_t>((last - strip.first_step) / strip.steps_per_column + 1);
  for (const RunSeries* run : shown) strip.rows.push_back(RowOf(*run, strip, columns));
  return strip;
}

}  // namespace nanwatch
