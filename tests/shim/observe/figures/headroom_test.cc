// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/figures/headroom.h"

#include <gtest/gtest.h>

#include <cmath>

#include "shim/observe/python/names/layer_table.h"
#include "shim/observe/torch/op_table.h"
#include "tests/shim/observe/events/observed_process.h"
#include "tests/shim/observe/figures/magnitudes.h"

namespace nanwatch {
namespace {

class HeadroomTest : public testing::Test {
 protected:
  HeadroomTest() {
    exp_.name = "aten::exp";
    mul_.name = "aten::mul";
    layer_.path = "blocks.0";
  }
  void Record(const OpTraits& op, float largest) {
    headroom_.Record(&op, &layer_, wire::ElementType::kFloat32, OfFloat(largest));
  }

  ObservedProcess process_;
  RecordingLevel level_;
  ProcessSegment& segment_ = *new ProcessSegment(process_.entry(), level_);
  Headroom headroom_{segment_};
  OpTraits exp_{};
  OpTraits mul_{};
  Layer layer_;
  wire::TelemetryEntry telemetry_{};
};

constexpr auto kFloat32 = wire::ElementType::kFloat32;
constexpr float kLargest = 3.4028234e38f;

TEST_F(HeadroomTest, AsksOnlyAboutMagnitudesWithinTheLast64thOfTheirType) {
  EXPECT_TRUE(Headroom::IsNear(kFloat32, OfFloat(kLargest / 32)));
  EXPECT_FALSE(Headroom::IsNear(kFloat32, OfFloat(kLargest / 256)));
  EXPECT_FALSE(Headroom::IsNear(kFloat32, OfFloat(1.0f)));
}

TEST_F(HeadroomTest, AsksNothingAboutASampleOrAboutIntegers) {
  EXPECT_FALSE(Headroom::IsNear(kFloat32, OfFloat(kLargest / 2, Magnitude::Kind::kAtLeast)));
  EXPECT_FALSE(Headroom::IsNear(wire::ElementType::kNone, OfFloat(kLargest / 2)));
}

TEST_F(HeadroomTest, GivesTheNearestOfAStepWithItsOpAndLayer) {
  Emitter* emitter = segment_.Ensure();
  ASSERT_NE(emitter, nullptr);
  Record(mul_, kLargest / 16);
  Record(exp_, kLargest / 2);
  Record(mul_, kLargest / 8);
  EXPECT_NEAR(headroom_.Take(&telemetry_), 0.5, 1e-6);
  EXPECT_NE(telemetry_.known & wire::TelemetryEntry::kNearLimit, 0u);
  EXPECT_EQ(telemetry_.near_op, emitter->Intern("aten::exp"));
  EXPECT_EQ(telemetry_.near_layer, emitter->Intern("blocks.0"));
  EXPECT_EQ(telemetry_.near_type, static_cast<uint32_t>(kFloat32));
  EXPECT_NEAR(telemetry_.near_largest, double{kLargest} / 2, 1e32);
}

TEST_F(HeadroomTest, BeginsAnewWithEachStep) {
  ASSERT_NE(segment_.Ensure(), nullptr);
  Record(exp_, kLargest / 2);
  EXPECT_GT(headroom_.Take(&telemetry_), 0);
  wire::TelemetryEntry next{};
  EXPECT_EQ(headroom_.Take(&next), 0);
  EXPECT_EQ(next.known & wire::TelemetryEntry::kNearLimit, 0u);
  Record(mul_, kLargest / 32);
  EXPECT_NEAR(headroom_.Take(&next), 1.0 / 32, 1e-6);
}

TEST_F(HeadroomTest, LeavesOutAMaskOfTheLargestNumber) {
  ASSERT_NE(segment_.Ensure(), nullptr);
  Record(exp_, kLargest);
  Record(exp_, kLargest * 0.99f);
  EXPECT_EQ(headroom_.Take(&telemetry_), 0);
}

TEST_F(HeadroomTest, GivesTheShareAloneWhileThereIsNoSegment) {
  Record(exp_, kLargest / 2);
  EXPECT_NEAR(headroom_.Take(&telemetry_), 0.5, 1e-6);
  EXPECT_EQ(telemetry_.known & wire::TelemetryEntry::kNearLimit, 0u);
}

}  // namespace
}  // namespace nanwatch
