// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/read_numbers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/shim/observe/observed_training.h"

namespace nanwatch {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class ReadNumbersTest : public testing::Test {
 protected:
  ReadNumbersTest() {
    source_.kind = static_cast<uint8_t>(wire::SourceKind::kValue);
    source_.value = 5;
  }
  bool MayBeIn(const at::Tensor& tensor, const char* op = "aten::lift_fresh") {
    frame_.op = &on_.Op(op);
    return on_.read_numbers.MayBeIn(frame_, {ObservedTraining::Plain(tensor), 0, false});
  }
  void Read(double number) { on_.read_numbers.OnRead(source_, {5, 1}, number); }

  ObservedTraining on_;
  wire::Source source_{};
  Frame frame_{};
};

TEST_F(ReadNumbersTest, KeepTheValueThatTheLastNanWasReadFrom) {
  Read(kNan);
  wire::Source source{};
  ValueRef value;
  ASSERT_TRUE(on_.read_numbers.FindLast(&source, &value));
  EXPECT_EQ(source.value, 5u);
  EXPECT_EQ(source.input, 255);
  EXPECT_EQ(value.ticket, 5u);
}

TEST_F(ReadNumbersTest, KeepNoInfinity) {
  Read(std::numeric_limits<double>::infinity());
  EXPECT_FALSE(on_.read_numbers.HasAny());
}

TEST_F(ReadNumbersTest, KnowNothingOfANanWhoseValueIsUnknown) {
  source_ = {};
  Read(kNan);
  wire::Source source{};
  ValueRef value;
  EXPECT_TRUE(on_.read_numbers.HasAny());
  EXPECT_FALSE(on_.read_numbers.FindLast(&source, &value));
}

TEST_F(ReadNumbersTest, SuspectATensorBuiltOfNumbers) {
  const at::Tensor built = at::full({3}, kNan);
  EXPECT_FALSE(MayBeIn(built)) << "none was read";
  Read(kNan);
  EXPECT_TRUE(MayBeIn(built));
  EXPECT_FALSE(MayBeIn(built, "aten::clone"));
}

TEST_F(ReadNumbersTest, DoNotSuspectABatchOrANanOfTheOtherSign) {
  Read(kNan);
  EXPECT_FALSE(MayBeIn(at::full({8, 4}, kNan)));
  EXPECT_FALSE(MayBeIn(at::full({3}, -kNan)));
  EXPECT_FALSE(MayBeIn(at::zeros({3})));
}

TEST_F(ReadNumbersTest, TrackInputsForSomeStepsAfterARead) {
  Read(kNan);
  on_.tracking.Arm();
  on_.tracking.Disarm();
  const bool while_held = on_.tracking.armed();
  on_.read_numbers.OnStep(64);
  on_.tracking.Disarm();
  EXPECT_EQ(on_.tracking.armed(), while_held) << "the last of them";
  on_.read_numbers.OnStep(65);
  on_.tracking.Disarm();
  EXPECT_FALSE(on_.tracking.armed());
}

}  // namespace
}  // namespace nanwatch
