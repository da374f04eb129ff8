// SPDX-License-Identifier: Apache-2.0
// Rates and verdicts of `top`.
#include "tools/top_look.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nanwatch {
namespace {

using ::testing::DoubleNear;
using ::testing::Optional;

constexpr uint64_t kSecond = 1'000'000'000;

std::vector<StepMark> Every(uint64_t apart_ns, int64_t count) {
  std::vector<StepMark> marks;
  for (int64_t i = 0; i < count; ++i) {
    marks.push_back(
        {.step = 100 + i, .time_ns = 1000 * kSecond + static_cast<uint64_t>(i) * apart_ns});
  }
  return marks;
}

TEST(StepRate, IsThatOfTheLastSeconds) {
  std::vector<StepMark> marks = Every(kSecond / 10, 30);
  EXPECT_THAT(StepRate(marks, marks.back().time_ns), Optional(DoubleNear(10, 1e-6)));
  // It was slow before, long ago.
  marks.insert(marks.begin(), {.step = 1, .time_ns = kSecond});
  EXPECT_THAT(StepRate(marks, marks.back().time_ns), Optional(DoubleNear(10, 1e-6)));
}

TEST(StepRate, OfStepsThatTakeLongerThanTheWindowIsKnownToo) {
  const std::vector<StepMark> marks = Every(20 * kSecond, 5);
  EXPECT_THAT(StepRate(marks, marks.back().time_ns + kSecond), Optional(DoubleNear(0.05, 1e-6)));
}

TEST(StepRate, SinksWhenStepsStayAway) {
  const std::vector<StepMark> marks = Every(kSecond / 10, 30);
  const uint64_t last = marks.back().time_ns;
  const double at_once = *StepRate(marks, last + kSecond / 10);
  EXPECT_NEAR(at_once, 10, 1e-6);
  EXPECT_LT(*StepRate(marks, last + 10 * kSecond), 3);
  EXPECT_LT(*StepRate(marks, last + 1000 * kSecond), 0.03);
}

// The cell has ended: nothing is slow.
TEST(StepRate, OfANotebookIsGoneWhenStepsStayAway) {
  const std::vector<StepMark> marks = Every(kSecond / 10, 30);
  const uint64_t last = marks.back().time_ns;
  EXPECT_NEAR(*StepRate(marks, last + kSecond / 10, true), 10, 1e-6);
  EXPECT_EQ(StepRate(marks, last + 10 * kSecond, true), std::nullopt);
}

TEST(StepRate, NeedsTwoSteps) {
  EXPECT_EQ(StepRate({}, kSecond), std::nullopt);
  EXPECT_EQ(StepRate(Every(1, 1), kSecond), std::nullopt);
}

TEST(UpdateRatio, IsTheMedianOfTheMatricesThatHaveOne) {
  StatsSnapshot snapshot;
  EXPECT_EQ(UpdateRatioOf(snapshot), std::nullopt);
  const auto add = [&](uint32_t dims, double update, double weight) {
    ParameterStats& parameter = *snapshot.add_parameters();
    parameter.set_dims(dims);
    parameter.set_update_norm(update);
    parameter.set_weight_norm(weight);
  };
  add(1, 50, 1);  // a bias
  add(2, 1, 0);   // zero so far
  EXPECT_EQ(UpdateRatioOf(snapshot), std::nullopt);
  for (const double update : {9.0, 1.0, 2.0}) add(2, update, 1000);
  EXPECT_EQ(UpdateRatioOf(snapshot), 0.002);
}

TEST(VerdictSoFar, FollowsTheIncidents) {
  Incident info;
  info.set_severity("info");
  Incident error;
  error.set_severity("error");
  EXPECT_EQ(VerdictSoFar({}, 0, true), "clean");
  EXPECT_EQ(VerdictSoFar({}, 0, false), "unknown");
  EXPECT_EQ(VerdictSoFar({}, 3, true), "");  // the daemon has not concluded yet
  EXPECT_EQ(VerdictSoFar({info}, 3, true), "expected");
  EXPECT_EQ(VerdictSoFar({info, error}, 3, true), "anomaly");
}

}  // namespace
}  // namespace nanwatch
