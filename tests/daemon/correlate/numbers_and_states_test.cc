// SPDX-License-Identifier: Apache-2.0
// Values that come back by a way that no op tells of: a number that Python read, the state that an
// optimizer keeps; and which parameter an update's own value has spoiled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/correlate/correlate.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using ::testing::ElementsAre;

TEST(Numbers, OpThatWasGivenANumberReadStepsBeforeComesOfTheValueItWasReadFrom) {
  RunBuilder run;
  run.Value(1).Produce("aten::sqrt").Step(2).Nan();
  run.Read(2, 1);
  run.Value(3)
      .Scalar("aten::mul")
      .Step(5)
      .From(1)
      .Flag(wire::ValueRecord::kUnseenInputs)
      .Nan()
      .NeedsGradient();
  run.Pass(4).Root(3);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.op(), "aten::sqrt");
  EXPECT_EQ(origin.step(), 2);
  EXPECT_FALSE(origin.exact());
  EXPECT_THAT(origin.unseen(), ElementsAre("inputs"));
}

TEST(Numbers, NumberOfWhichNothingWasReadIsAskedForAtItsOp) {
  RunBuilder run;
  run.Value(1).Scalar("aten::mul").Step(5).Nan().NeedsGradient();
  run.Pass(2).Root(1);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().class_(), "scalar");
  EXPECT_TRUE(verdict.incidents(0).origin().exact());
}

// AdamW with a rate of Inf: the decay leaves Inf, and the update makes NaN of it.
TEST(Numbers, InfThatAnUpdateWasGivenIsNoMask) {
  RunBuilder run;
  run.Step(4);
  run.Value(1).Scalar("aten::mul_").Optimizer("fc.weight").WroteParameter("fc.weight").PosInf();
  run.Value(2)
      .InfToNan("aten::addcdiv_")
      .Optimizer("fc.weight")
      .WroteParameter("fc.weight")
      .From(1, wire::kHasPosInf)
      .Nan();
  run.Update(3).Parameter("fc.weight", 2);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::mul_");
}

TEST(OptimizerOrigins, ValueThatIsWrittenNowhereNamesTheFirstParameterThatComesOfIt) {
  RunBuilder run;
  run.Step(3);
  run.Value(1).Produce("aten::sqrt").Phase(wire::Phase::kOptimizer).Nan();
  run.Value(2).Produce("aten::sqrt").Phase(wire::Phase::kOptimizer).At("other").Nan();
  run.Value(3)
      .Propagate("aten::addcdiv_")
      .Optimizer("head.bias")
      .From(2)
      .Nan()
      .WroteParameter("head.bias");
  run.Value(4)
      .Propagate("aten::addcdiv_")
      .Optimizer("body.weight")
      .From(1)
      .Nan()
      .WroteParameter("body.weight");
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_GE(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().kind(), "optimizer");
  EXPECT_EQ(verdict.incidents(0).origin().param(), "body.weight");
  EXPECT_EQ(verdict.incidents(0).origin().layer(), "body");
}

TEST(OptimizerStates, StateThatAnUpdateFindsBadComesOfTheUpdateThatSpoiledIt) {
  RunBuilder run;
  run.Step(3);
  run.Value(1).Produce("aten::addcmul_").Phase(wire::Phase::kOptimizer).PosInf();
  run.Update(2).State("fc.weight", 1);
  run.Value(3)
      .External("aten::mul_")
      .Phase(wire::Phase::kOptimizer)
      .Step(4)
      .Flag(wire::ValueRecord::kUnseenLevel)
      .PosInf();
  run.Update(4).State("fc.weight", 3);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::addcmul_");
  EXPECT_EQ(verdict.incidents(0).origin().step(), 3);
}

TEST(OptimizerStates, StateThatWasBadBeforeAnyUpdateIsItsOwnOrigin) {
  RunBuilder run;
  run.Value(1).External("aten::mul_").Phase(wire::Phase::kOptimizer).Step(4).Nan();
  run.Update(2).State("fc.weight", 1);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().kind(), "optimizer_state");
}

// Level canary sees no op of the backward pass, but it sees what the pass left.
TEST(OptimizerStates, NanThatMomentsOfAnInfiniteGradientMakeComesOfTheGradient) {
  RunBuilder run;
  run.Step(3);
  run.Value(1)
      .Propagate("torch::autograd::AccumulateGrad")
      .Phase(wire::Phase::kBackward)
      .FromUnknown()
      .NegInf();
  run.Pass(2).Leaf("fc.weight", 1);
  run.Value(3).Propagate("aten::lerp_").Phase(wire::Phase::kOptimizer).From(1).NegInf();
  run.Value(4).Propagate("aten::addcmul_").Phase(wire::Phase::kOptimizer).From(1).PosInf();
  run.Value(5).InfToNan("aten::addcdiv_").Optimizer("fc.weight").From(3).From(4).Nan();
  run.Update(6).State("fc.weight", 3).Parameter("fc.weight", 5);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.op(), "torch::autograd::AccumulateGrad");
  EXPECT_FALSE(origin.exact());
  EXPECT_THAT(verdict.incidents(0).reach(), ::testing::IsSupersetOf({"gradient", "parameter"}));
}

// for p in parameters: p.grad.mul_(number)
TEST(Numbers, LoopThatScalesByABadNumberIsOneIncident) {
  const auto incidents = [](const std::string& line) {
    RunBuilder run;
    run.Value(1)
        .Produce("aten::mul_")
        .Line("train.py:9")
        .Flag(wire::ValueRecord::kUnseenInputs)
        .PosInf(8, 8);
    run.Value(2).Scalar("aten::mul_").Line(line).PosInf(1, 1);
    run.Value(3).InfToNan("aten::addcdiv_").Optimizer("fc.bias").From(2).Nan(1, 1);
    run.Update(4).Parameter("fc.bias", 3);
    return Correlate({run.Build()});
  };
  const Verdict same = incidents("train.py:9");
  ASSERT_EQ(same.incidents_size(), 1);
  EXPECT_EQ(same.incidents(0).origin().class_(), "scalar");
  EXPECT_FALSE(same.incidents(0).origin().exact());
  EXPECT_EQ(incidents("train.py:10").incidents_size(), 2);
}

// x.mul_(number) of an activation: as with any constant, what makes NaN of it is to blame.
TEST(Numbers, ActivationThatIsScaledInPlaceIsAConstant) {
  const auto origin = [](const std::string& layer, const std::string& type) {
    RunBuilder run;
    run.Value(1).Scalar("aten::mul_").At(layer, type).Line("net.py:9").PosInf(8, 8);
    run.Value(2).InfToNan("aten::addmm").At("fc", "Linear").From(1).Nan(8, 8);
    run.Pass(3).Root(2);
    return Correlate({run.Build()}).incidents(0).origin().op();
  };
  EXPECT_EQ(origin("block", "Block"), "aten::addmm");
  EXPECT_EQ(origin("", "Net"), "aten::addmm");
  EXPECT_EQ(origin("", ""), "aten::mul_");
}

// optimizer = Adam([*model.parameters(), unused], eps=0): 0/0 in `unused`, which no module holds.
TEST(OptimizerStates, ParameterWithoutANameIsNotCalledByAnothersName) {
  RunBuilder run;
  run.Value(1).Produce("aten::addcdiv_").Optimizer("").WroteParameter("").Nan(3, 3);
  run.Update(2).Parameter("", 1);
  run.Value(3)
      .Propagate("aten::addcdiv_")
      .Optimizer("fc.weight")
      .From(1)
      .WroteParameter("fc.weight")
      .Nan(8, 8);
  run.Update(4).Parameter("fc.weight", 3);
  const Finding origin = Correlate({run.Build()}).incidents(0).origin();
  EXPECT_EQ(origin.op(), "aten::addcdiv_");
  EXPECT_EQ(origin.param(), "");
  EXPECT_EQ(origin.layer(), "");
}

// A step of SAM: the parameters were moved to NaN before the forward, and the update adds to them.
TEST(OptimizerStates, ParameterThatAnUpdateFindsBadAtLevelCanaryIsOfThePass) {
  RunBuilder run;
  run.Value(1).Propagate("torch.nn.Module.__call__").FromUnknown().Nan(8, 8).NeedsGradient();
  run.Pass(2).Root(1).Number(1);
  run.Value(3).Propagate("torch::autograd::AccumulateGrad").From(1).Nan(8, 8);
  run.Pass(4).Number(2).Leaf("fc.weight", 3);
  run.Value(5)
      .Propagate("aten::add_")
      .Optimizer("fc.weight")
      .FromOutside(wire::Target::kParameter, "fc.weight")
      .From(3)
      .Flag(wire::ValueRecord::kUnseenLevel)
      .WroteParameter("fc.weight")
      .Nan(8, 8);
  run.Update(6).Parameter("fc.weight", 5);
  EXPECT_EQ(Correlate({run.Build()}).incidents_size(), 1);
}

}  // namespace
}  // namespace nanwatch
