// SPDX-License-Identifier: Apache-2.0
// What a report says of how much was watched, in one line.
#include "daemon/report/coverage_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nanwatch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Verdict Watched(int processes) {
  Verdict verdict;
  verdict.mutable_coverage()->set_steps(6);
  auto& steps = *verdict.mutable_coverage()->mutable_steps_watched();
  steps["full"] = static_cast<uint64_t>(4) * static_cast<uint64_t>(processes);
  steps["idle"] = static_cast<uint64_t>(2) * static_cast<uint64_t>(processes);
  for (int i = 0; i < processes; ++i) verdict.add_runs();
  return verdict;
}

TEST(WatchedText, SaysOfHowManyProcessesItsLevelsAre) {
  EXPECT_THAT(WatchedText(Watched(1)), HasSubstr("6 steps (4"));
  EXPECT_THAT(WatchedText(Watched(1)), Not(HasSubstr("processes")));
  EXPECT_THAT(WatchedText(Watched(2)), HasSubstr("6 steps (in 2 processes: 8"));
}

TEST(WatchedText, ThatNothingWasMeasuredIsNoPromise) {
  EXPECT_THAT(WatchedText(Watched(1)), Not(HasSubstr("yet")));
}

}  // namespace
}  // namespace nanwatch
