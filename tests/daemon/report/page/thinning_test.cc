// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/page/thinning.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace nanwatch {
namespace {

TEST(Thinning, LeavesAShortSeriesAsItIs) {
  const std::vector<SeriesColumn> columns = Thin({{0, 1.5}, {1, 2.5}, {2, -3}}, 10);
  ASSERT_EQ(columns.size(), 3u);
  EXPECT_EQ(columns[2],
            (SeriesColumn{.x = 2, .last_x = 2, .low = -3, .high = -3, .mean = -3, .finite = 1}));
}

TEST(Thinning, KeepsThePeakOfOneStepAmongTenThousand) {
  std::vector<SeriesValue> values;
  for (int64_t i = 0; i < 10'000; ++i) values.push_back({i, i == 7'777 ? 1e6 : 1});
  const std::vector<SeriesColumn> columns = Thin(values, 1'000);
  ASSERT_LE(columns.size(), 1'000u);
  double highest = 0;
  for (const SeriesColumn& column : columns) highest = std::max(highest, column.high);
  EXPECT_EQ(highest, 1e6);
  EXPECT_EQ(columns.front().low, 1);
}

TEST(Thinning, PutsTheValuesOfAllRanksOfAStepInOneColumn) {
  const std::vector<SeriesColumn> columns = Thin({{0, 1}, {1, 5}, {0, 3}, {1, 9}}, 100);
  ASSERT_EQ(columns.size(), 2u);
  EXPECT_EQ(columns[0].mean, 2);
  EXPECT_EQ(columns[1].low, 5);
  EXPECT_EQ(columns[1].high, 9);
}

TEST(Thinning, CountsWhatIsNotFiniteApart) {
  const std::vector<SeriesColumn> columns = Thin({{0, NAN}, {0, 2}, {1, INFINITY}}, 100);
  ASSERT_EQ(columns.size(), 2u);
  EXPECT_EQ(columns[0].mean, 2);
  EXPECT_EQ(columns[0].non_finite, 1u);
  EXPECT_EQ(columns[1].finite, 0u);
}

TEST(Thinning, SurvivesStepsOfAnySizeAndValuesNearTheLimit) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr double kLargest = std::numeric_limits<double>::max();
  const std::vector<SeriesColumn> columns =
      Thin({{kLeast, kLargest}, {kMost, kLargest}, {kMost, kLargest}, {0, -kLargest}}, 2);
  ASSERT_FALSE(columns.empty());
  EXPECT_LE(columns.size(), 2u);
  EXPECT_TRUE(std::isfinite(columns.back().mean));
  EXPECT_TRUE(Thin({}, 5).empty());
  EXPECT_EQ(Thin({{3, 1}}, 0).size(), 1u);
}

}  // namespace
}  // namespace nanwatch
