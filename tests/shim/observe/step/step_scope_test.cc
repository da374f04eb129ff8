// SPDX-License-Identifier: Apache-2.0
// Steps in, records and facts out.
#include "shim/observe/step/step_scope.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/shim/observe/observed_training.h"

namespace nanwatch {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr char kAdam[] = "Optimizer.step#AdamW.step";

class StepScopeTest : public testing::Test {
 protected:
  void Step() {
    on_.steps.OnStepBegin(&on_.thread, kAdam, nullptr, &optimizer_);
    on_.steps.OnStepEnd(&on_.thread);
  }
  void Poison() {
    on_.poison.Mark(nullptr, ObservedTraining::Plain(parameter_));
    on_.poison_watch.Settle();
    ASSERT_TRUE(on_.poison.Poisoned());
  }

  ObservedTraining on_;
  int optimizer_ = 0;
  at::Tensor parameter_ = at::full({4}, kNan);
};

TEST_F(StepScopeTest, PublishesAStepWhereItEnds) {
  on_.losses.Record(0.5);
  Step();
  ASSERT_EQ(on_.sink.steps.size(), 1u);
  const StepEnded& step = on_.sink.steps[0];
  EXPECT_EQ(step.clocks.optimizer_ranges, 1u);
  EXPECT_TRUE(step.loss_known);
  EXPECT_EQ(step.loss, 0.5);
  EXPECT_TRUE(step.calm);
  EXPECT_FALSE(step.off);
  EXPECT_EQ(on_.marks.iteration, 1u);
}

TEST_F(StepScopeTest, KnowsTheTimeOfAStepFromTheSecondOn) {
  Step();
  Step();
  EXPECT_EQ(on_.sink.steps[0].step_ns, 0u);
  EXPECT_NE(on_.sink.steps[1].step_ns, 0u);
}

TEST_F(StepScopeTest, KnowsNoTimeOfTheFirstStepOfACell) {
  Step();
  on_.publisher.OnCell();
  Step();
  EXPECT_EQ(on_.sink.steps[1].step_ns, 0u);
}

TEST_F(StepScopeTest, LetsTheLevelChangeOnlyBetweenSteps) {
  on_.steps.OnStepBegin(&on_.thread, kAdam, nullptr, &optimizer_);
  EXPECT_EQ(on_.sink.boundaries, 1u);
  on_.steps.OnStepEnd(&on_.thread);
  EXPECT_EQ(on_.sink.boundaries, 2u);
}

TEST_F(StepScopeTest, CountsTheOutermostStepAlone) {
  on_.steps.OnStepBegin(&on_.thread, kAdam, nullptr, &optimizer_);
  Step();
  EXPECT_TRUE(on_.sink.steps.empty());
  EXPECT_EQ(on_.progress.range(), 1u);
  on_.steps.OnStepEnd(&on_.thread);
  EXPECT_EQ(on_.sink.steps.size(), 1u);
  on_.steps.OnStepEnd(&on_.thread);
  EXPECT_EQ(on_.sink.steps.size(), 1u) << "nothing was open";
}

TEST_F(StepScopeTest, TakesAStepThatAnExceptionHasLeftForNone) {
  on_.steps.OnStepBegin(&on_.thread, kAdam, nullptr, &optimizer_);
  on_.steps.OnStepsLeft(&on_.thread, 0);
  EXPECT_EQ(on_.thread.optimizer_depth, 0u);
  EXPECT_EQ(on_.progress.completed(), 0u);
}

TEST_F(StepScopeTest, CountsAStepThatTheScalerSkips) {
  on_.steps.OnScaleUpdate(&on_.thread, {.scale = 1024, .known = true});
  EXPECT_TRUE(on_.sink.steps.empty());
  on_.scaler.OnUnscale(true);
  on_.steps.OnScaleUpdate(&on_.thread, {.scale = 512, .known = true});
  const auto records = on_.Emitted<wire::ScalerRecord>(wire::RecordKind::kScaler);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].scale_before, 1024);
  EXPECT_EQ(records[0].scale_after, 512);
  ASSERT_EQ(on_.sink.steps.size(), 1u);
  EXPECT_FALSE(on_.sink.steps[0].calm);
  EXPECT_EQ(on_.sink.steps[0].clocks.scaler_skips, 1u);
}

TEST_F(StepScopeTest, LeavesTheStepOfAFusedOptimizerThatSkipsItselfToTheScaler) {
  on_.steps.OnFusedSeen();
  on_.scaler.OnUnscale(true);
  Step();
  EXPECT_TRUE(on_.sink.steps.empty());
  on_.steps.OnScaleUpdate(&on_.thread, {.scale = 512, .known = true});
  EXPECT_EQ(on_.sink.steps.size(), 1u);
}

TEST_F(StepScopeTest, TakesAnUpdateByHandForAStep) {
  on_.marks.plain_update_due = true;
  on_.steps.OnPlainUpdate(&on_.thread);
  EXPECT_FALSE(on_.marks.plain_update_due);
  ASSERT_EQ(on_.sink.steps.size(), 1u);
  EXPECT_EQ(on_.sink.steps[0].clocks.plain_updates, 1u);
}

TEST_F(StepScopeTest, TracksInputsInTheFirstStepOfAnOptimizer) {
  on_.steps.OnStepBegin(&on_.thread, kAdam, nullptr, &optimizer_);
  EXPECT_TRUE(on_.thread.optimizer_holds_inputs);
  on_.steps.OnStepEnd(&on_.thread);
  on_.steps.OnStepBegin(&on_.thread, kAdam, nullptr, &optimizer_);
  EXPECT_FALSE(on_.thread.optimizer_holds_inputs);
  on_.steps.OnStepEnd(&on_.thread);
  on_.steps.OnFusedSeen();
  on_.steps.OnStepBegin(&on_.thread, kAdam, nullptr, &optimizer_);
  EXPECT_TRUE(on_.thread.optimizer_holds_inputs);
}

TEST_F(StepScopeTest, WatchesTheOpsOfTheFirstUpdatesAtCanary) {
  on_.level.SetWatched(wire::Level::kCanary);
  on_.steps.OnStepBegin(&on_.thread, kAdam, &optimizer_);
  EXPECT_TRUE(on_.thread.optimizer_watches_ops);
  on_.steps.OnStepEnd(&on_.thread);
  on_.steps.SetOpsWatchedUntil(0);
  on_.steps.OnStepBegin(&on_.thread, kAdam, &optimizer_);
  EXPECT_FALSE(on_.thread.optimizer_watches_ops);
}

TEST_F(StepScopeTest, ReadsWhatAnUpdateWritesWhoseOpsAreHidden) {
  on_.level.SetWatched(wire::Level::kCanary);
  const at::DisableRecordFunctionGuard hidden;
  on_.steps.OnStepBegin(&on_.thread, kAdam, &optimizer_);
  EXPECT_FALSE(on_.thread.optimizer_watches_ops);
  on_.steps.OnStepEnd(&on_.thread);
}

TEST_F(StepScopeTest, MakesWhatLivesForStepsPartOfTheScenery) {
  const BadOutput mask{ObservedTraining::Plain(parameter_), 0, false};
  on_.known_bad.Remember(&mask, 1, {.value = {5, 1}, .site = 1, .written = Written{}});
  Step();
  Step();
  EXPECT_EQ(on_.bad_values.transient(), 1u);
  Step();
  EXPECT_EQ(on_.bad_values.transient(), 0u);
  EXPECT_EQ(on_.bad_values.size(), 1u);
}

TEST_F(StepScopeTest, RecordsWhatAnUpdateHasLeftBad) {
  on_.steps.OnStepBegin(&on_.thread, kAdam, nullptr, &optimizer_);
  const BadOutput state{ObservedTraining::Plain(parameter_), 0, false};
  on_.known_bad.Remember(&state, 1,
                         {.value = {5, 1}, .site = 1, .written = Written{}, .in_optimizer = true});
  on_.steps.OnStepEnd(&on_.thread);
  const auto updates = on_.Emitted<wire::UpdateRecord>(wire::RecordKind::kUpdate);
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].states_bad, 1u);
  EXPECT_EQ(updates[0].parameters_bad, 0u);
  EXPECT_EQ(updates[0].bad[0].value, 5u);
}

TEST_F(StepScopeTest, RecordsNothingThatWasBadBeforeTheUpdate) {
  const BadOutput state{ObservedTraining::Plain(parameter_), 0, false};
  on_.known_bad.Remember(&state, 1, {.value = {5, 1}, .site = 1, .written = Written{}});
  Step();
  EXPECT_TRUE(on_.Emitted<wire::UpdateRecord>(wire::RecordKind::kUpdate).empty());
}

TEST_F(StepScopeTest, HandsBeginAndEndToTheQueueInAJobWithAGpu) {
  on_.late.on = true;
  Step();
  EXPECT_EQ(on_.late.updates_begun, 1u);
  EXPECT_EQ(on_.late.updates_ended, std::vector<bool>({false}));
  EXPECT_TRUE(on_.sink.steps.empty()) << "it is published when the GPU has answered";
  on_.steps.OnPlainUpdate(&on_.thread);
  EXPECT_EQ(on_.late.plain_updates, 1u);
}

TEST_F(StepScopeTest, SaysThatAStepWasNotWatchedWhileParametersAreBad) {
  Poison();
  Step();
  ASSERT_EQ(on_.sink.steps.size(), 1u);
  Step();
  EXPECT_TRUE(on_.poison.Blind());
  EXPECT_EQ(on_.sink.steps.back().watched, wire::Level::kIdle);
}

TEST_F(StepScopeTest, SaysThatAStepWasOffAndCountsItAsIdle) {
  on_.level.SetOffToMeasure(true);
  Step();
  EXPECT_TRUE(on_.sink.steps[0].off);
  uint64_t watched[wire::kWatchedLevels] = {};
  on_.progress.StepsWatched(watched);
  EXPECT_EQ(watched[static_cast<int>(wire::Level::kIdle)], 1u);
}

TEST_F(StepScopeTest, CountsNoStepWhoseOpsTheProgramHasHidden) {
  on_.level.SetHidden();
  Step();
  uint64_t watched[wire::kWatchedLevels] = {};
  on_.progress.StepsWatched(watched);
  EXPECT_EQ(watched[static_cast<int>(wire::Level::kFull)], 0u);
  EXPECT_FALSE(on_.sink.steps[0].calm);
}

TEST_F(StepScopeTest, EndsTheScaleOfALossWithItsStep) {
  on_.losses.SetScaled(true);
  Step();
  EXPECT_FALSE(on_.losses.IsScaled());
}

}  // namespace
}  // namespace nanwatch
