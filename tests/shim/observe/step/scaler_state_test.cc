// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/scaler_state.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

using wire::ScalerRecord;

bool Skipped(const ScalerRecord& record) { return (record.flags & ScalerRecord::kSkipped) != 0; }
bool ScaleKnown(const ScalerRecord& record) {
  return (record.flags & ScalerRecord::kScaleKnown) != 0;
}

TEST(ScalerState, SkipsNothingWhereNoCheckHasFoundAnything) {
  ScalerState scaler;
  scaler.OnUnscale(false);
  EXPECT_FALSE(scaler.FoundInf());
  EXPECT_FALSE(Skipped(scaler.OnUpdate({.scale = 2, .known = true})));
}

TEST(ScalerState, SkipsWhereOneOfSeveralChecksHasFoundSomething) {
  ScalerState scaler;
  scaler.OnUnscale(true);
  scaler.OnUnscale(false);
  EXPECT_TRUE(scaler.FoundInf());
  EXPECT_TRUE(Skipped(scaler.OnUpdate({.scale = 1, .known = true})));
}

TEST(ScalerState, TakesWhatWasHandedToTheUpdateForTheCheckThatWentByUnseen) {
  ScalerState scaler;
  EXPECT_TRUE(Skipped(scaler.OnUpdate({.scale = 1, .known = true, .found_inf = true})));
}

TEST(ScalerState, ForgetsWhatWasFoundWithTheUpdate) {
  ScalerState scaler;
  scaler.OnUnscale(true);
  (void)scaler.OnUpdate({.scale = 1, .known = true});
  EXPECT_FALSE(scaler.FoundInf());
  EXPECT_FALSE(Skipped(scaler.OnUpdate({.scale = 1, .known = true})));
}

TEST(ScalerState, CountsSkipsInARowUntilAStepIsTaken) {
  ScalerState scaler;
  const ScalerState::Update skip{.scale = 1, .known = true, .found_inf = true};
  EXPECT_EQ(scaler.OnUpdate(skip).skips_in_a_row, 1u);
  EXPECT_EQ(scaler.OnUpdate(skip).skips_in_a_row, 2u);
  EXPECT_EQ(scaler.OnUpdate({.scale = 1, .known = true}).skips_in_a_row, 0u);
  EXPECT_EQ(scaler.OnUpdate(skip).skips_in_a_row, 1u);
}

TEST(ScalerState, HasTheScaleBeforeAndAfterAnUpdate) {
  ScalerState scaler;
  (void)scaler.OnUpdate({.scale = 1024, .known = true});
  const ScalerRecord record = scaler.OnUpdate({.scale = 512, .known = true, .found_inf = true});
  EXPECT_EQ(record.scale_before, 1024);
  EXPECT_EQ(record.scale_after, 512);
  EXPECT_TRUE(ScaleKnown(record));
}

TEST(ScalerState, SaysThatTheScaleIsKnownOnlyOnceBothAre) {
  ScalerState scaler;
  EXPECT_FALSE(ScaleKnown(scaler.OnUpdate({.scale = 1024, .known = true})));
  EXPECT_FALSE(ScaleKnown(scaler.OnUpdate({.scale = 0, .known = false})));
  EXPECT_FALSE(ScaleKnown(scaler.OnUpdate({.scale = 512, .known = true})));
  EXPECT_TRUE(ScaleKnown(scaler.OnUpdate({.scale = 512, .known = true})));
}

TEST(ScalerState, GivesTheLastScaleAndWhetherItIsKnown) {
  ScalerState scaler;
  double scale = -1;
  EXPECT_FALSE(scaler.Scale(&scale));
  (void)scaler.OnUpdate({.scale = 8, .known = true});
  EXPECT_TRUE(scaler.Scale(&scale));
  EXPECT_EQ(scale, 8);
}

TEST(ScalerState, ForgetsBothWhereItGoesByUnseenFromNowOn) {
  ScalerState scaler;
  (void)scaler.OnUpdate({.scale = 8, .known = true});
  scaler.OnUnscale(true);
  scaler.Forget();
  double scale = 0;
  EXPECT_FALSE(scaler.FoundInf());
  EXPECT_FALSE(scaler.Scale(&scale));
}

}  // namespace
}  // namespace nanwatch
