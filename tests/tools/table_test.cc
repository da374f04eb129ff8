// SPDX-License-Identifier: Apache-2.0
#include "tools/table.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

TEST(Table, ColumnsAreAsWideAsTheirWidestCell) {
  EXPECT_EQ(
      FormatTable({{"RUN"}, {"STEP", true}, {"STATE"}}, {{"7f3a", "5", "ended"}, {"1", "117", ""}}),
      "RUN   STEP  STATE\n"
      "7f3a     5  ended\n"
      "1      117\n");
}

TEST(Table, CellsOfTheTerminalCountNotBytes) {
  EXPECT_EQ(FormatTable({{"P"}, {"Q"}}, {{"\u8bad\u7ec3", "1"}, {"abc", "2"}}),
            "P     Q\n\u8bad\u7ec3  1\nabc   2\n");
  EXPECT_EQ(FormatTable({{"P"}, {"Q"}}, {{"\u00e9t\u00e9", "1"}, {"abc", "2"}}),
            "P    Q\n\u00e9t\u00e9  1\nabc  2\n");
}

TEST(Table, AgesHaveOneUnit) {
  EXPECT_EQ(FormatAge(41'000'000'000), "41 s");
  EXPECT_EQ(FormatAge(720'000'000'000), "12 min");
  EXPECT_EQ(FormatAge(uint64_t{3} * 3600 * 1'000'000'000), "3 h");
  EXPECT_EQ(FormatAge(uint64_t{5} * 86400 * 1'000'000'000), "5 d");
}

}  // namespace
}  // namespace nanwatch
