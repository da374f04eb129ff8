// SPDX-License-Identifier: Apache-2.0
// Gradients that were bad, and of which no update was made.
#include <gmock/gmock.h>

#include "daemon/correlate/correlate.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

// A bad gradient under a finite loss, at step 3.
RunBuilder WithBadGradient() {
  RunBuilder run;
  run.Value(1).Produce("aten::div").Backward("SqrtBackward0").Step(3).Nan();
  run.Pass(2).Leaf("fc.weight", 1);
  return run;
}

// The verdict when the run ended after `steps`, and the severity of its incident.
std::string VerdictAfter(uint32_t steps, RunBuilder run) {
  const Verdict verdict = Correlate({run.Ended(OptimizerClocks({steps})).Build()});
  return verdict.verdict() + ", " + verdict.incidents(0).severity();
}

TEST(Unapplied, GradientAfterWhichTheTrainingWentOnIsExpected) {
  EXPECT_EQ(VerdictAfter(7, WithBadGradient()), "expected, info");
}

TEST(Unapplied, GradientOfAStepInWhichTheLevelWasChangedIsUnknown) {
  const auto changed_in = [](uint32_t step, wire::LevelRecord::Why why) {
    RunBuilder run = WithBadGradient();
    run.Step(step);
    run.LevelChanged(5, wire::Level::kFull, why);
    return Correlate({run.Ended(OptimizerClocks({7})).Build()});
  };
  const Verdict verdict = changed_in(3, wire::LevelRecord::Why::kAsked);
  EXPECT_EQ(verdict.verdict(), "unknown");
  EXPECT_EQ(verdict.unknown_because(), "update_not_seen");
  EXPECT_EQ(changed_in(5, wire::LevelRecord::Why::kAsked).verdict(), "expected");
  EXPECT_EQ(changed_in(3, wire::LevelRecord::Why::kSuspicion).verdict(), "expected");
}

TEST(Unapplied, GradientWithWhichTheRunEndsIsAnAnomaly) {
  EXPECT_THAT(VerdictAfter(3, WithBadGradient()), testing::StartsWith("anomaly"));
}

// A batch that is skipped, and the last one, too.
TEST(Unapplied, WhatWasLeftOutBeforeIsLeftOutInTheLastStepToo) {
  const auto verdict_of = [](bool before, bool ended_well) {
    RunBuilder run;
    run.Value(1).Produce("aten::div").Step(3).Nan();
    run.Pass(2).Root(1).Leaf("fc.weight", 1);
    run.Read(3, 1);
    run.Value(11).Produce(before ? "aten::div" : "aten::log").Step(7).Nan();
    run.Pass(12).Root(11).Leaf("fc.weight", 11);
    run.Read(13, 11);
    RunFacts facts = run.Ended(OptimizerClocks({7})).ExitCode(ended_well ? 0 : 1).Build();
    facts.mutable_state()->set_ended(true);
    return Correlate({facts}).verdict();
  };
  EXPECT_EQ(verdict_of(true, true), "expected");
  EXPECT_EQ(verdict_of(false, true), "anomaly") << "nothing like it was left out before";
  EXPECT_EQ(verdict_of(true, false), "anomaly") << "it may have ended the run";
}

// Only the first tests of a place are recorded, and when it made the last.
TEST(Unapplied, LossAtCanaryThatIsTestedAfterItsPassIsExpected) {
  const auto verdict_of = [](bool tested) {
    RunBuilder run;
    run.Value(1).Propagate("torch.autograd.backward").Step(3).Nan();
    run.Pass(2).Root(1);
    if (tested) run.Tested(3, 1);
    return Correlate({run.Ended(OptimizerClocks({7})).Build()}).verdict();
  };
  EXPECT_EQ(verdict_of(true), "expected");
  EXPECT_EQ(verdict_of(false), "anomaly");
}

TEST(Unapplied, UpdateThatLeavesAParameterBadWasMadeOfIt) {
  RunBuilder run = WithBadGradient();
  run.Update(3).Parameter("fc.weight", 1);
  const Verdict verdict = Correlate({run.Ended(OptimizerClocks({7})).Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.incidents(0).severity(), "critical");
}

TEST(Unapplied, ParameterThatGoesBadMuchLaterIsAnotherStory) {
  RunBuilder run = WithBadGradient();
  run.Value(5).Produce("aten::log").At("late").Step(30).Nan();
  run.Pass(6).Leaf("fc.weight", 5);
  run.Update(7).Parameter("fc.weight", 5);
  const Verdict verdict = Correlate({run.Ended(OptimizerClocks({40})).Build()});
  ASSERT_EQ(verdict.incidents_size(), 2);
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::log");
  EXPECT_EQ(verdict.incidents(1).severity(), "info");
}

TEST(Unapplied, BadLossStaysAnAnomaly) {
  RunBuilder run;
  run.Value(1).Produce("aten::log").Step(3).Nan();
  run.Pass(2).Root(1).Leaf("fc.weight", 1);
  EXPECT_EQ(Correlate({run.Ended(OptimizerClocks({7})).Build()}).verdict(), "anomaly");
}

// At step 3 the program reads a loss that is not finite.
RunBuilder WithBadLossRead() {
  RunBuilder run;
  run.Value(2).Produce("aten::div").NeedsGradient().Step(3).Nan();
  run.Escape(3, 2, /*at_root=*/true);
  return run;
}

TEST(Unapplied, LossThatIsReadAndWhoseStepIsLeftOutIsExpected) {
  EXPECT_EQ(VerdictAfter(7, WithBadLossRead()), "expected, info");
}

TEST(Unapplied, LossThatIsReadOfARunThatEndsWithItIsAnAnomaly) {
  EXPECT_THAT(VerdictAfter(3, WithBadLossRead()), testing::StartsWith("anomaly"));
}

// if not torch.isfinite(loss): continue, after loss.backward().
TEST(Unapplied, LossThatIsReadAndWhoseGradientsNoUpdateTookIsExpected) {
  RunBuilder before = WithBadLossRead();
  before.Pass(4).Root(2).Leaf("fc.weight", 2);
  EXPECT_EQ(VerdictAfter(7, before), "expected, info");
  RunBuilder after;
  after.Value(2).Produce("aten::div").NeedsGradient().Step(3).Nan();
  after.Pass(4).Root(2).Leaf("fc.weight", 2);
  after.Escape(5, 2, /*at_root=*/true);
  EXPECT_EQ(VerdictAfter(7, after), "expected, info");
}

// The norm of the gradients, for one.
TEST(Unapplied, LossOfWhoseGradientsAnotherNumberIsReadIsExpected) {
  RunBuilder run;
  run.Value(2).Produce("aten::div").NeedsGradient().Step(3).Nan();
  run.Pass(4).Root(2).Leaf("fc.weight", 2);
  run.Value(5).Propagate("aten::linalg_vector_norm").From(2).Step(3).Nan();
  run.Escape(6, 5, /*at_root=*/false);
  EXPECT_EQ(VerdictAfter(7, run), "expected, info");
}

TEST(Unapplied, LossThatIsReadAndWhoseGradientsAnUpdateTookIsAnAnomaly) {
  RunBuilder run = WithBadLossRead();
  run.Pass(4).Root(2).Leaf("fc.weight", 2);
  run.Update(5).Parameter("fc.weight", 2);
  EXPECT_EQ(Correlate({run.Ended(OptimizerClocks({7})).Build()}).verdict(), "anomaly");
}

TEST(Unapplied, LossThatIsReadInAnotherStepIsAnAnomaly) {
  RunBuilder run;
  run.Value(2).Produce("aten::div").NeedsGradient().Step(3).Nan();
  run.Pass(4).Root(2).Leaf("fc.weight", 2);
  run.Value(5).Propagate("aten::mul").From(2).Step(5).Nan();
  run.Escape(6, 5, /*at_root=*/false);
  EXPECT_EQ(Correlate({run.Ended(OptimizerClocks({7})).Build()}).verdict(), "anomaly");
}

TEST(Unapplied, LossThatIsReadOfARunThatStaysBadIsAnAnomaly) {
  RunBuilder run = WithBadLossRead();
  run.Pass(4).Root(2).Leaf("fc.weight", 2);
  run.Value(5).Produce("aten::div").NeedsGradient().Step(7).Nan();
  run.Pass(6).Root(5).Leaf("fc.weight", 5);
  run.Escape(7, 5, /*at_root=*/true);
  EXPECT_EQ(Correlate({run.Ended(OptimizerClocks({7})).Build()}).verdict(), "anomaly");
}

TEST(Unapplied, LossThatIsReadAndTrainedOnIsAnAnomaly) {
  RunBuilder run = WithBadLossRead();
  run.Pass(4).Root(2);
  EXPECT_EQ(Correlate({run.Ended(OptimizerClocks({7})).Build()}).verdict(), "anomaly");
}

// It has skipped others, which says nothing of a step that the program itself left out.
TEST(Unapplied, LossThatIsLeftOutBesideAGradScalerIsExpected) {
  Clocks ended = OptimizerClocks({7});
  ended.set_scaler_skips(2);
  EXPECT_EQ(Correlate({WithBadLossRead().Ended(ended).Build()}).verdict(), "expected");
}

// At level canary: norm = clip_grad_norm_(...); if not isfinite(norm): continue
TEST(Unapplied, LossAtCanaryWhosePassWasTestedAndFoundBadIsExpected) {
  const auto after = [](uint32_t tested_in, uint32_t ended, bool of_result = false) {
    RunBuilder run;
    run.Value(1).Propagate("torch.autograd.backward").Step(3).Inexact().Nan();
    run.Pass(2).Root(1);
    auto& tested = run.Value(3).Propagate("torch.isfinite").Step(tested_in).Inexact();
    if (of_result) tested.From(1);
    tested.Nan();
    return VerdictAfter(ended, run);
  };
  EXPECT_EQ(after(3, 7), "expected, info");
  EXPECT_EQ(after(3, 7, true), "expected, info") << "what the model returned explains it";
  EXPECT_THAT(after(3, 3), testing::StartsWith("anomaly")) << "it may have ended because of it";
  EXPECT_THAT(after(4, 7), testing::StartsWith("anomaly")) << "an update was made before";
}

TEST(Unapplied, AnotherOptimizerThatWentOnSaysNothingYet) {
  EXPECT_EQ(Correlate({WithBadGradient().Ended(OptimizerClocks({3, 1})).Build()}).verdict(),
            "anomaly");
}

}  // namespace
}  // namespace nanwatch
