// Gradients that were bad, and of which no update was made.
#include <gtest/gtest.h>

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

TEST(Unapplied, GradientAfterWhichTheTrainingWentOnIsExpected) {
  const Verdict verdict = Correlate({WithBadGradient().Ended(OptimizerClocks({7})).Build()});
  EXPECT_EQ(verdict.verdict(), "expected");
  EXPECT_EQ(verdict.incidents(0).severity(), "info");
}

TEST(Unapplied, GradientWithWhichTheRunEndsIsAnAnomaly) {
  EXPECT_EQ(Correlate({WithBadGradient().Ended(OptimizerClocks({3})).Build()}).verdict(),
            "anomaly");
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

// A bad loss that Python read at step 3, where earlier passes began.
RunBuilder WithLossRead() {
  RunBuilder run;
  run.Value(1).Produce("aten::log").Step(3).NeedsGradient().Nan();
  run.Escape(2, 1, /*at_root=*/true);
  return run;
}

TEST(Unapplied, LossThatWasReadAndLeftOutIsExpected) {
  EXPECT_EQ(Correlate({WithLossRead().Ended(OptimizerClocks({7})).Build()}).verdict(), "expected");
}

TEST(Unapplied, LossWithWhichTheRunEndsIsAnAnomaly) {
  EXPECT_EQ(Correlate({WithLossRead().Ended(OptimizerClocks({3})).Build()}).verdict(), "anomaly");
}

TEST(Unapplied, LossThatWasReadAndThatAPassBeganAtIsAnAnomaly) {
  RunBuilder run = WithLossRead();
  run.Pass(3).Root(1).Leaf("fc.weight", 1);
  EXPECT_EQ(Correlate({run.Ended(OptimizerClocks({7})).Build()}).verdict(), "anomaly");
}

TEST(Unapplied, AnotherOptimizerThatWentOnSaysNothingYet) {
  EXPECT_EQ(Correlate({WithBadGradient().Ended(OptimizerClocks({3, 1})).Build()}).verdict(),
            "anomaly");
}

}  // namespace
}  // namespace nanwatch
