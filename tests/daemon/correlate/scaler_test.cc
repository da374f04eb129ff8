// SPDX-License-Identifier: Apache-2.0
// What a GradScaler excuses, and what it does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/correlate/correlate.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using ::testing::Contains;

TEST(Scaler, OverflowOfScaledGradientsThatIsSkippedIsExpected) {
  RunBuilder run;
  run.Value(1).Produce("aten::_to_copy").Backward("ToCopyBackward0").At("fc2").PosInf();
  run.Pass(2).Leaf("fc2.weight", 1);
  run.ScalerSkip(3, 65536, 1);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "expected");
  EXPECT_EQ(verdict.incidents(0).severity(), "info");
}

RecordTensor DataWithInf() {
  RecordTensor data;
  data.set_element_type(static_cast<uint32_t>(wire::ElementType::kFloat32));
  data.set_numel(8);
  data.set_pos_inf(1);
  data.set_finite_min(-0.2);
  data.set_finite_max(0.4);
  return data;
}

// A saturated unit hides it from the loss, and the slope of its weights is 0 * Inf.
TEST(Scaler, DataThatWasBadBeforeTheForwardReadItIsNoOverflow) {
  RunBuilder run;
  run.Value(1)
      .Propagate("aten::addmm")
      .FromOutside(wire::Target::kInputData, "", wire::kHasPosInf)
      .Input(DataWithInf())
      .PosInf();
  run.Value(2)
      .Propagate("aten::mm")
      .Backward("AddmmBackward0")
      .FromOutside(wire::Target::kInputData, "", wire::kHasPosInf)
      .Input(DataWithInf())
      .Nan();
  run.Pass(3).Leaf("fc.weight", 2);
  run.ScalerSkip(4, 65536, 1);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::addmm");
}

TEST(Scaler, NanThatNobodySawComingInIsNotKnownToBeAnOverflow) {
  RunBuilder run;
  run.Value(1)
      .Propagate("aten::mm")
      .Backward("AddmmBackward0")
      .FromOutside(wire::Target::kInputData, "", wire::kHasNan)
      .WriterUnseen()
      .Nan();
  run.Pass(2).Leaf("fc.weight", 1);
  run.ScalerSkip(3, 65536, 1);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "unknown");
  EXPECT_EQ(verdict.unknown_because(), "skip_not_explained");
}

// The level was lowered between the backward and the scaler's step.
TEST(Scaler, GradientsOfAScaledLossWhoseUpdateNobodySawAreUnknown) {
  RunBuilder run;
  run.Value(1).Produce("aten::div").Backward("LogBackward0").At("fc2").Nan();
  run.Pass(2).Scaled().Leaf("fc2.weight", 1);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "unknown");
  EXPECT_EQ(verdict.unknown_because(), "skip_not_seen");
  EXPECT_EQ(verdict.incidents(0).severity(), "info");
}

TEST(Scaler, GradientsOfAScaledLossThatReachedAParameterAreAnAnomaly) {
  RunBuilder run;
  run.Value(1).Produce("aten::div").Backward("LogBackward0").At("fc2").Nan();
  run.Pass(2).Scaled().Leaf("fc2.weight", 1);
  run.Value(3).Propagate("aten::add_").Optimizer("fc2.weight").From(1).Nan();
  run.Update(4).Parameter("fc2.weight", 3);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "anomaly");
}

TEST(Scaler, GradientsOfALossThatWasNotScaledAreAnAnomalyThoughNobodySawTheUpdate) {
  RunBuilder run;
  run.Value(1).Produce("aten::div").Backward("LogBackward0").At("fc2").Nan();
  run.Pass(2).Leaf("fc2.weight", 1);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "anomaly");
}

// A scale that is a thousand times too high at first.
TEST(Scaler, MoreThanTenSkipsInARowAreExpectedIfAnUpdateFollows) {
  RunBuilder run;
  run.Value(1).Produce("aten::mm").Backward("MmBackward0").At("fc2").PosInf();
  run.Pass(2).Leaf("fc2.weight", 1);
  run.ScalerSkip(3, 64, 11);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "anomaly");
  RunFacts facts = run.Build();
  facts.mutable_state()->mutable_clocks()->set_optimizer_ranges(1);
  EXPECT_EQ(Correlate({facts}).verdict(), "expected");
}

TEST(Scaler, LossThatOnlyTheScaleMadeInfiniteIsExpected) {
  RunBuilder run;
  run.Value(1).Produce("aten::mul").PosInf();
  run.Value(2).Propagate("aten::mul").Backward("MulBackward0").From(1).PosInf();
  run.Pass(3).Root(1).Leaf("fc.weight", 2);
  run.ScalerSkip(4, 65536, 1);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "expected");
}

// half * 65504 as the last op of a forward is no scale.
TEST(Scaler, LossThatAModulesOwnProductMadeInfiniteIsNotExcused) {
  const auto verdict_of = [](const std::string& layer, const std::string& type) {
    RunBuilder run;
    run.Value(1).Produce("aten::mul").At(layer, type).PosInf();
    run.Value(2).Propagate("aten::mul").Backward("MulBackward0").From(1).PosInf();
    run.Pass(3).Root(1).Leaf("fc.weight", 2);
    run.ScalerSkip(4, 65536, 1);
    return Correlate({run.Build()}).verdict();
  };
  EXPECT_EQ(verdict_of("head", "Head"), "anomaly");
  EXPECT_EQ(verdict_of("", "Net"), "anomaly");
  EXPECT_EQ(verdict_of("", ""), "expected");
}

TEST(Scaler, ValueMadeInForwardIsNotExcusedBySkipping) {
  RunBuilder run;
  run.Value(1).Produce("aten::pow").At("mlps.1").Step(4).PosInf();
  run.Value(2).Propagate("aten::mul").Backward("PowBackward0").From(1).PosInf();
  run.Pass(3).Leaf("stem.weight", 2);
  run.ScalerSkip(4, 64, 1);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.incidents(0).severity(), "error");
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::pow");
  EXPECT_THAT(verdict.incidents(0).reach(), Contains("gradient"));
}

// What was read in part: an overflow is an overflow, and a NaN may come of the forward.
TEST(Scaler, NanThatTheForwardMayHaveMadeUnreadIsUnknown) {
  constexpr uint32_t kSampled = wire::ValueRecord::kUnseenSampled | wire::ValueRecord::kInexact;
  RunBuilder run;
  run.Value(1).Produce("aten::mul").Backward("ExpBackward0").At("fc").Nan().Flag(kSampled);
  run.Pass(2).Leaf("fc.weight", 1);
  run.ScalerSkip(3, 65536, 1);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "unknown");
  EXPECT_EQ(verdict.unknown_because(), "skip_not_explained");
  RunBuilder overflow;
  overflow.Value(1).Produce("aten::mm").Backward("MmBackward0").PosInf().Flag(kSampled);
  overflow.Pass(2).Leaf("fc.weight", 1);
  overflow.ScalerSkip(3, 65536, 1);
  EXPECT_EQ(Correlate({overflow.Build()}).verdict(), "expected");
  RunBuilder seen;
  seen.Value(1).Produce("aten::mul").Backward("MulBackward0").Nan();
  seen.Pass(2).Leaf("fc.weight", 1);
  seen.ScalerSkip(3, 65536, 1);
  EXPECT_EQ(Correlate({seen.Build()}).verdict(), "expected");
}

TEST(Scaler, ParameterThatIsBadItselfIsNotExcusedWhereverItWasMet) {
  RunBuilder run;
  run.Value(1)
      .External("aten::mm")
      .FromOutside(wire::Target::kParameter, "fc.weight", wire::kHasPosInf)
      .Backward("MmBackward0")
      .At("fc")
      .PosInf();
  run.Pass(2).Leaf("fc.bias", 1);
  run.ScalerSkip(3, 64, 1);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "anomaly");
}

// numpy has written into what a backward op keeps of the forward pass.
TEST(Scaler, WhatForwardHandedToABackwardOpIsNotExcused) {
  const auto verdict_of = [](const char* op, const char* bad_argument) {
    RunBuilder run;
    RecordTensor input = Tensor({4});
    input.set_name(bad_argument);
    input.set_pos_inf(1);
    run.Value(1)
        .External(op)
        .FromOutside(wire::Target::kNone, "", wire::kHasPosInf)
        .Backward("TanhBackward0")
        .Input(input)
        .Nan();
    run.Pass(2).Leaf("fc.bias", 1);
    run.ScalerSkip(3, 64, 1);
    return Correlate({run.Build()}).verdict();
  };
  EXPECT_EQ(verdict_of("aten::tanh_backward", "output"), "anomaly");
  EXPECT_EQ(verdict_of("aten::tanh_backward", "grad_output"), "expected");
  EXPECT_EQ(verdict_of("aten::mul", "other"), "expected") << "which of both is the gradient?";
}

TEST(Scaler, BadRootIsNotExcused) {
  RunBuilder run;
  run.Value(1).Produce("aten::pow").At("mlps.1").PosInf();
  run.Value(2).Propagate("aten::mul").From(1).PosInf();
  run.Pass(3).Root(2);
  run.ScalerSkip(4, 64, 1);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "anomaly");
}

TEST(Scaler, MoreThanTenSkipsInARowAreNotExcused) {
  RunBuilder run;
  for (uint32_t skip = 1; skip <= 11; ++skip) {
    run.Value(skip * 10).Produce("aten::mul").Backward("MulBackward0").At("fc").PosInf();
    run.Pass(skip * 10 + 1).Leaf("fc.weight", skip * 10);
    run.ScalerSkip(skip * 10 + 2, 65536, skip);
  }
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "anomaly");
}

TEST(Scaler, TenSkipsInARowAreExcused) {
  RunBuilder run;
  for (uint32_t skip = 1; skip <= 10; ++skip) {
    run.Value(skip * 10).Produce("aten::mul").Backward("MulBackward0").At("fc").PosInf();
    run.Pass(skip * 10 + 1).Leaf("fc.weight", skip * 10);
    run.ScalerSkip(skip * 10 + 2, 65536, skip);
  }
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "expected");
}

TEST(Scaler, EndlessSkipsAreSeenWhenOnlyTheirFirstPassesWereWrittenOut) {
  RunBuilder run;
  run.Value(1).Produce("aten::mul").Backward("MulBackward0").At("fc").PosInf();
  run.Pass(2).Leaf("fc.weight", 1);
  for (uint32_t skip = 1; skip <= 11; ++skip) run.ScalerSkip(2 + skip, 65536, skip);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "anomaly");
}

TEST(Scaler, ScaleBelowOneExcusesNothing) {
  RunBuilder run;
  run.Value(1).Produce("aten::mul").Backward("MulBackward0").At("fc").PosInf();
  run.Pass(2).Leaf("fc.weight", 1);
  run.ScalerSkip(3, 0.5, 1);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "anomaly");
}

TEST(Scaler, BadGradientWithoutAScalerIsAnAnomaly) {
  RunBuilder run;
  run.Value(1).Produce("aten::mul").Backward("MulBackward0").At("fc").PosInf();
  run.Pass(2).Leaf("fc.weight", 1);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "anomaly");
}

TEST(Scaler, JobKilledBeforeTheScalerDecidedIsNotAccused) {
  RunBuilder run;
  run.Value(1).Produce("aten::mul").Backward("MulBackward0").At("fc").PosInf();
  run.Pass(2).Leaf("fc.weight", 1);
  run.ScalerSkip(3, 65536, 1);
  run.Value(4).Produce("aten::mul").Backward("MulBackward0").At("fc").PosInf();
  run.Pass(5).Leaf("fc.weight", 4);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "expected");
}

TEST(Scaler, GradientThatWasAppliedIsNotExcusedByALaterSkip) {
  RunBuilder run;
  run.Value(1).Produce("aten::mul").Backward("MulBackward0").At("fc").PosInf();
  run.Pass(2).Leaf("fc.weight", 1);
  run.Update(3).Parameter("fc.weight", 1);
  run.ScalerSkip(4, 65536, 1);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "anomaly");
}

TEST(Scaler, SkippedStepsCountInTheIterationAndNotInTheStep) {
  RunBuilder run;
  run.ScalerSkip(1, 65536, 1);
  run.ScalerSkip(2, 32768, 2);
  run.Value(3).Produce("aten::log").At("loss").Step(3).NegInf();
  run.Pass(4).Root(3);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.incidents(0).origin().step(), 3);
  EXPECT_EQ(verdict.incidents(0).origin().iteration(), 5);
}

// Level canary: the update's range is skipped with the update, so no record tells of its gradients.
TEST(Scaler, SkippedUpdatesOfWhichNoOpIsKnownAreNotClean) {
  Clocks clocks = OptimizerClocks({58});
  clocks.set_scaler_skips(22);
  RunFacts facts = RunBuilder().Ended(clocks).Build();
  *facts.mutable_state()->mutable_clocks() = clocks;
  const Verdict verdict = Correlate({facts});
  EXPECT_EQ(verdict.verdict(), "expected");
  EXPECT_TRUE(verdict.incidents().empty());
}

}  // namespace
}  // namespace nanwatch
