// SPDX-License-Identifier: Apache-2.0
#include "tools/tail_lines.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

TailEntry Finding(uint64_t at, const char* run, const char* finding_class, int64_t step) {
  FindingLine line;
  line.run = run;
  line.finding_class = finding_class;
  line.step = step;
  return {.real_ns = at, .text = std::string(run) + std::to_string(at), .finding = line};
}

TailEntry Other(uint64_t at, const char* text) {
  return {.real_ns = at, .text = text, .finding = {}};
}

TEST(TailLines, AreInTheOrderOfTimeWhateverTheyAre) {
  EXPECT_EQ(LastLines({Other(30, "incident"), Finding(20, "a", "produce", 1), Other(10, "warning")},
                      20, false),
            "warning\na20\nincident\n");
}

TEST(TailLines, AreAsManyAsWereAskedForAndTheLast) {
  EXPECT_EQ(LastLines({Other(1, "a"), Other(3, "c"), Other(2, "b")}, 2, false), "b\nc\n");
  EXPECT_EQ(LastLines({Other(1, "a")}, 0, false), "");
}

TEST(TailLines, SumUpWhatOnlyPassesOnSoThatTheOriginIsAmongTheLast) {
  std::vector<TailEntry> storm = {Finding(1, "a", "produce", 7)};
  for (uint64_t i = 2; i < 1000; ++i)
    storm.push_back(Finding(i, "a", "propagate", static_cast<int64_t>(7 + i / 100)));
  EXPECT_EQ(LastLines(storm, 2, false),
            "a1\na2  (and 997 more that passed it on, until step 16)\n");
  for (TailEntry& entry : storm) entry.text = "{\"event\":\"finding\"}";
  EXPECT_EQ(LastLines(storm, 1, true),
            "{\"event\":\"finding\",\"further\":997,\"further_until_step\":16}\n");
}

TEST(TailLines, SumUpAPlaceThatMakesABadValueInEveryStep) {
  TailEntry other = Finding(4, "a", "produce", 2);
  other.finding->op = "aten::log";
  EXPECT_EQ(LastLines({Finding(1, "a", "produce", 1), Finding(2, "a", "propagate", 1),
                       Finding(3, "a", "produce", 2), other, Finding(5, "a", "produce", 3)},
                      20, false),
            "a1  (and 2 more here, until step 3)\na2\na4\n");
}

TEST(TailLines, SumUpEachRunByItselfAndNotOverAnotherKindOfLine) {
  EXPECT_EQ(LastLines({Finding(1, "a", "propagate", 1), Finding(2, "b", "propagate", 1),
                       Finding(3, "a", "propagate", 1), Other(4, "warning"),
                       Finding(5, "a", "propagate", 1)},
                      20, false),
            "a1  (and 1 more that passed it on)\nb2\nwarning\na5\n");
}

}  // namespace
}  // namespace nanwatch
