// SPDX-License-Identifier: Apache-2.0
// The programs whose records were written down by hand when the rules were made: each is a run in a
// few lines, told as the job would record it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/correlate/correlate.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

TEST(KnownPrograms, ValueKilledByWhereAndRevivedInBackwardIsTracedToTheForwardSqrt) {
  RunBuilder run;
  run.Value(1).Produce("aten::sqrt").At("valves.main", "Orifice").Step(5).Nan();
  run.Value(5).Propagate("aten::div").At("valves.main").Backward("SqrtBackward0").From(1).Nan();
  run.Value(6).Propagate("aten::mm").At("inp").Backward("AddmmBackward0").From(5).Nan();
  run.Pass(7).Leaf("inp.weight", 6);
  run.Value(8).Propagate("aten::addcdiv_").Optimizer("inp.weight").From(6).Nan();
  run.Update(9).Parameter("inp.weight", 8);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  ASSERT_EQ(verdict.incidents_size(), 1);
  const Incident& incident = verdict.incidents(0);
  EXPECT_EQ(incident.severity(), "critical");
  EXPECT_EQ(incident.origin().kind(), "op");
  EXPECT_EQ(incident.origin().op(), "aten::sqrt");
  EXPECT_EQ(incident.origin().class_(), "produce");
  EXPECT_EQ(incident.origin().phase(), "forward");
  EXPECT_EQ(incident.origin().layer(), "valves.main");
  EXPECT_EQ(incident.origin().step(), 5);
  EXPECT_EQ(incident.origin().step_source(), "optimizer");
  EXPECT_THAT(incident.reach(), ElementsAre("activation", "gradient", "parameter"));
  EXPECT_EQ(incident.count(), 4u);
}

TEST(KnownPrograms, FullyMaskedRowIsTracedToTheSoftmaxAndNotToItsMask) {
  RunBuilder run;
  run.Step(5);
  run.Value(1).Scalar("aten::masked_fill").At("layers.0.self_attn").NegInf();
  run.Value(2)
      .InfToNan("aten::_softmax")
      .At("layers.0.self_attn", "MultiheadAttention")
      .From(1)
      .Nan();
  run.Value(3).Propagate("aten::nll_loss_forward").From(2).Nan();
  run.Pass(9).Root(3).Leaf("emb.weight", 3);
  run.Update(10).Parameter("emb.weight", 3);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.op(), "aten::_softmax");
  EXPECT_EQ(origin.class_(), "inf_to_nan");
  EXPECT_EQ(origin.layer(), "layers.0.self_attn");
  EXPECT_EQ(origin.step(), 5);
  EXPECT_THAT(verdict.incidents(0).reach(), Contains("loss"));
}

TEST(KnownPrograms, LossWithoutKeptTargetsReachesTheLossOnly) {
  RunBuilder run;
  run.Value(1).Produce("aten::nll_loss_forward").Step(6).Nan(1, 1);
  run.Pass(2).Root(1);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.incidents(0).severity(), "error");
  EXPECT_THAT(verdict.incidents(0).reach(), ElementsAre("activation", "loss"));
  EXPECT_EQ(verdict.incidents(0).origin().reach(), "loss");
}

TEST(KnownPrograms, DivisionInsideTheUpdateIsAnOptimizerOriginWithItsParameter) {
  RunBuilder run;
  run.Value(1).Produce("aten::addcdiv_").Optimizer("gate.weight").Step(3).Nan();
  run.Update(2).Parameter("gate.weight", 1);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.kind(), "optimizer");
  EXPECT_EQ(origin.op(), "aten::addcdiv_");
  EXPECT_EQ(origin.phase(), "optimizer");
  EXPECT_EQ(origin.param(), "gate.weight");
  EXPECT_EQ(origin.layer(), "gate");
  EXPECT_EQ(origin.step(), 3);
}

TEST(KnownPrograms, UpdateThatOnlyTheRangeEndSawIsNamedByTheUpdateRecord) {
  RunBuilder run;
  run.Value(1).Produce("aten::_fused_adamw_").Phase(wire::Phase::kOptimizer).Step(4).Nan();
  run.Update(2).Parameter("adapter.0.weight", 1);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.incidents(0).origin().kind(), "optimizer");
  EXPECT_EQ(verdict.incidents(0).origin().param(), "adapter.0.weight");
  EXPECT_EQ(verdict.incidents(0).origin().layer(), "adapter.0");
}

TEST(KnownPrograms, RunningVarianceOfOneValueReachesTheBufferAndNoLoss) {
  RunBuilder run;
  run.Value(1)
      .Produce("aten::native_batch_norm")
      .At("aspp.1")
      .WroteBuffer("aspp.1.running_var")
      .Step(5)
      .Nan();
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.incidents(0).severity(), "critical");
  EXPECT_EQ(verdict.incidents(0).origin().param(), "aspp.1.running_var");
  EXPECT_THAT(verdict.incidents(0).reach(), ElementsAre("activation", "buffer"));
}

TEST(KnownPrograms, BufferThatWentBadIsNotANewOriginWhenEvaluationReadsIt) {
  RunBuilder run;
  run.Value(1)
      .Produce("aten::native_batch_norm")
      .At("aspp.1")
      .WroteBuffer("aspp.1.running_var")
      .Step(5)
      .Nan();
  run.Value(2)
      .Propagate("aten::native_batch_norm")
      .At("aspp.1")
      .Step(8)
      .FromOutside(wire::Target::kBuffer, "aspp.1.running_var")
      .Nan();
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().step(), 5);
  EXPECT_EQ(verdict.incidents(0).last_step(), 8);
}

TEST(KnownPrograms, NanKilledInsideBackwardIsExpected) {
  RunBuilder run;
  run.Step(6);
  run.Value(1).Scalar("aten::masked_fill").At("ll").NegInf();
  run.Value(2).InfToNan("aten::sub").At("ll").Backward("LogsumexpBackward0").From(1).Nan();
  run.Pass(4);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "expected");
  for (const Incident& incident : verdict.incidents()) EXPECT_EQ(incident.severity(), "info");
}

TEST(KnownPrograms, FiniteLossWithNanSavedForBackwardIsAnAnomalyAtTheLogSoftmax) {
  RunBuilder run;
  run.Step(5);
  run.Value(1).Scalar("aten::masked_fill").NegInf();
  run.Value(2).Propagate("aten::add").From(1).NegInf();
  run.Value(3).InfToNan("aten::_log_softmax").At("ce").From(2).Nan();
  run.Value(7)
      .Propagate("aten::_log_softmax_backward_data")
      .At("ce")
      .Backward("LogSoftmaxBackward0")
      .From(3)
      .Nan();
  run.Pass(8).Leaf("item.weight", 7);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::_log_softmax");
  EXPECT_THAT(verdict.incidents(0).reach(), Not(Contains("loss")));
}

TEST(KnownPrograms, NanInARegisteredBufferIsABufferOrigin) {
  RunBuilder run;
  run.Value(1)
      .Propagate("aten::mm")
      .At("bank")
      .Step(3)
      .FromOutside(wire::Target::kBuffer, "bank.values")
      .Nan();
  run.Pass(2).Root(1).Leaf("enc.weight", 1);
  const Verdict verdict = Correlate({run.Build()});
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.kind(), "buffer");
  EXPECT_EQ(origin.param(), "bank.values");
  EXPECT_EQ(origin.layer(), "bank");
  EXPECT_EQ(origin.class_(), "external");
}

TEST(KnownPrograms, MaskFromOutsideIsNotTheOriginOfTheNanMadeOfIt) {
  RunBuilder run;
  run.Step(4);
  run.Value(1)
      .Propagate("aten::where")
      .At("crf")
      .FromOutside(wire::Target::kNone, "", wire::kHasNegInf)
      .NegInf();
  run.Value(2).Propagate("aten::logaddexp").At("crf").From(1).NegInf();
  run.Value(6).InfToNan("aten::sub").At("crf").Backward("LogaddexpBackward0").From(2).Nan();
  run.Value(7).Propagate("aten::sum").At("crf").Backward("ExpandBackward0").From(6).Nan();
  run.Pass(8).Leaf("crf.trans", 7);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::sub");
  EXPECT_EQ(verdict.incidents(0).origin().phase(), "backward");
  EXPECT_EQ(verdict.incidents(0).origin().autograd_node(), "LogaddexpBackward0");
}

TEST(KnownPrograms, LossThatOnlyPythonSawIsReachedByItsPlace) {
  RunBuilder run;
  run.Step(8);
  run.Pass(1).RootMadeBy("aten::mean", "");
  run.Step(9);
  run.Value(2).Produce("aten::rsqrt").At("gain").Nan();
  run.Value(3).Propagate("aten::mean").From(2).Nan().NeedsGradient();
  run.Escape(4, 3, false);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::rsqrt");
  EXPECT_EQ(verdict.incidents(0).origin().step(), 9);
  EXPECT_THAT(verdict.incidents(0).reach(), ElementsAre("activation", "loss"));
}

TEST(KnownPrograms, MetricThatNoPassCanBeginAtIsNoLossThoughTheSameOpMakesBoth) {
  RunBuilder run;
  run.Pass(1).RootMadeBy("aten::mean", "");
  run.Value(2).Produce("aten::mean").Nan();
  run.Escape(3, 2, false);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "expected");
}

TEST(KnownPrograms, NumberReadFromAnotherPlaceIsNoLoss) {
  RunBuilder run;
  run.Pass(1).RootMadeBy("aten::mean", "");
  run.Value(2).Produce("aten::rsqrt").At("gain").Nan();
  run.Value(3).Propagate("aten::max").At("gain").From(2).Nan();
  run.Escape(4, 3, false);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "expected");
}

TEST(KnownPrograms, WhatIsCopiedIntoAParameterAsItCameInIsTheParameter) {
  RunBuilder run;
  run.Step(3);
  run.Value(1).External("aten::lift_fresh").Phase(wire::Phase::kOther).Nan();
  run.Value(2)
      .Propagate("aten::copy_")
      .Phase(wire::Phase::kOther)
      .From(1)
      .WroteParameter("1.weight")
      .Nan();
  const Verdict verdict = Correlate({run.Build()});
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(origin.kind(), "parameter");
  EXPECT_EQ(origin.param(), "1.weight");
  EXPECT_EQ(origin.layer(), "1");
  EXPECT_EQ(origin.step(), 3);
}

TEST(KnownPrograms, BatchWithNanIsInputDataAtTheFirstOpThatComputesWithIt) {
  RunBuilder run;
  run.Step(4);
  run.Value(1).External("aten::stack").Phase(wire::Phase::kOther).Nan();
  run.Value(2).Propagate("aten::addmm").At("inp", "Linear").From(1).Nan();
  run.Pass(3).Root(2).Leaf("inp.weight", 2);
  const Finding origin = Correlate({run.Build()}).incidents(0).origin();
  EXPECT_EQ(origin.kind(), "input_data");
  EXPECT_EQ(origin.class_(), "external");
  EXPECT_EQ(origin.op(), "aten::addmm");
  EXPECT_EQ(origin.layer(), "inp");
  EXPECT_EQ(origin.step(), 4);
}

TEST(KnownPrograms, BatchWithNanIsOfTheStepThatComputesWithItHoweverEarlyItWasInMemory) {
  RunBuilder run;
  run.Value(1).External("aten::copy_").Phase(wire::Phase::kOther).Step(0).Nan();
  run.Value(2).Propagate("aten::stack").Phase(wire::Phase::kOther).Step(5).From(1).Nan();
  run.Value(3).Propagate("aten::addmm").At("inp", "Linear").Step(6).From(2).Nan();
  run.Pass(4).Root(3).Leaf("inp.weight", 3);
  const Finding origin = Correlate({run.Build()}).incidents(0).origin();
  EXPECT_EQ(origin.op(), "aten::addmm");
  EXPECT_EQ(origin.step(), 6);
}

TEST(KnownPrograms, ParameterThatWasNeverInitialisedIsAParameterOriginAtStepZero) {
  RunBuilder run;
  run.Value(1)
      .External("aten::addmm")
      .At("layers.0", "ScaledLinear")
      .Step(0)
      .FromOutside(wire::Target::kParameter, "layers.0.bias")
      .Nan();
  run.Pass(2).Root(1).Leaf("layers.0.bias", 1);
  run.Ended(OptimizerClocks({5}));
  const Verdict verdict = Correlate({run.Build()});
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.kind(), "parameter");
  EXPECT_EQ(origin.param(), "layers.0.bias");
  EXPECT_EQ(origin.layer(), "layers.0");
  EXPECT_EQ(origin.layer_type(), "ScaledLinear");
  EXPECT_EQ(origin.step(), 0);
}

TEST(KnownPrograms, RowThatTheFirstUpdateReadsAndWritesBackIsTheParameterAndNoBatch) {
  RunBuilder run;
  run.Value(1).External("aten::detach").Phase(wire::Phase::kOther).Step(0).Nan();
  run.Value(3).Propagate("aten::add_").Optimizer("words.weight").From(1).Nan();
  run.Ended(OptimizerClocks({9}));
  const Verdict verdict = Correlate({run.Build()});
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.kind(), "parameter");
  EXPECT_EQ(origin.param(), "words.weight");
  EXPECT_EQ(origin.layer(), "words");
}

TEST(KnownPrograms, MomentumThatAnUpdateReadsBesideItsParameterIsTheOptimizersState) {
  RunBuilder run;
  run.Value(1).External("aten::lift_fresh").Phase(wire::Phase::kOther).Step(2).Nan();
  run.Value(3).Propagate("aten::add_").Optimizer("words.weight").From(1).Nan().Input(1);
  run.Ended(OptimizerClocks({9}));
  const Finding origin = Correlate({run.Build()}).incidents(0).origin();
  EXPECT_EQ(origin.kind(), "optimizer_state");
  EXPECT_EQ(origin.param(), "words.weight");
}

TEST(KnownPrograms, SlopeOfTheDivisionThatSpoiledTheLossIsTheSameIncident) {
  RunBuilder run;
  run.Step(5);
  run.Value(1).Produce("aten::div").At("criterion").PosInf(1, 1);
  run.Pass(2).Root(1);
  run.Value(3).Produce("aten::div").At("criterion").Backward("DivBackward0").InPass(1).PosInf(1, 1);
  run.Value(4)
      .InfToNan("aten::convolution_backward")
      .At("up")
      .Backward("ConvolutionBackward0")
      .InPass(1)
      .From(3)
      .Nan();
  run.Pass(5).Number(1).Leaf("up.weight", 4);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().phase(), "forward");
  EXPECT_THAT(verdict.incidents(0).reach(), ElementsAre("activation", "loss", "gradient"));
}

TEST(KnownPrograms, GradientsOfALossThatIsAConstantAreOfThatConstant) {
  RunBuilder run;
  run.Value(1).Scalar("aten::masked_fill").At("head").Nan();
  run.Value(2).Propagate("aten::mse_loss").From(1).Nan(1, 1);
  run.Pass(3).Root(2);
  run.Value(4)
      .Propagate("aten::tanh_backward")
      .At("up")
      .Backward("TanhBackward0")
      .InPass(1)
      .FromOutside(wire::Target::kInputData, "")
      .Nan();
  run.Pass(5).Number(1).Leaf("up.weight", 4);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::masked_fill");
  EXPECT_THAT(verdict.incidents(0).reach(), Contains("gradient"));
}

TEST(KnownPrograms, RowOfADataSetIsBadInTheStepThatUsesIt) {
  RunBuilder run;
  run.Value(1).External("aten::lift_fresh").Step(0).Nan();
  run.Value(2).Propagate("aten::stack").Step(7).From(1).Nan();
  run.Value(3).Propagate("aten::addmm").At("embed").Step(7).From(2).Nan();
  run.Pass(4).Root(3);
  const Verdict verdict = Correlate({run.Build()});
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.kind(), "input_data");
  EXPECT_EQ(origin.op(), "aten::addmm");
  EXPECT_EQ(origin.step(), 7);
  EXPECT_EQ(verdict.incidents(0).first_step(), 7);
}

TEST(KnownPrograms, SlopeUnderAFiniteLossIsItsOwnIncident) {
  RunBuilder run;
  run.Value(1).Produce("aten::div").At("criterion").PosInf(1, 1);
  run.Pass(2).Root(1);
  run.Value(3).Produce("aten::div").At("criterion").Backward("DivBackward0").InPass(2).PosInf(1, 1);
  run.Pass(4).Number(2).Leaf("up.weight", 3);
  EXPECT_EQ(Correlate({run.Build()}).incidents_size(), 2);
}

TEST(KnownPrograms, BufferThatBackwardReadsUnnamedIsTheBufferThatForwardNamed) {
  RunBuilder run;
  run.Value(1).External("aten::detach").Phase(wire::Phase::kOther).Step(0).Nan();
  run.Value(2)
      .Propagate("aten::mm")
      .At("bank")
      .Step(3)
      .FromOutside(wire::Target::kBuffer, "bank.values")
      .Nan();
  run.Pass(3).Root(2);
  run.Value(4).Propagate("aten::mm").At("bank").Backward("MmBackward0").InPass(1).From(1).Nan();
  run.Pass(5).Number(1).Leaf("enc.weight", 4);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.incidents(0).origin().kind(), "buffer");
  EXPECT_THAT(verdict.incidents(0).reach(), Contains("gradient"));
}

TEST(KnownPrograms, EarliestOfSeveralProducersIsTheOrigin) {
  RunBuilder run;
  run.Step(7);
  run.Value(1).Produce("aten::exp").At("prob").PosInf();
  run.Value(2).Produce("aten::exp").At("other").PosInf();
  run.Value(3).InfToNan("aten::div").At("prob").From(2).From(1).Nan();
  run.Pass(4).Root(3);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::exp");
  EXPECT_EQ(verdict.incidents(0).origin().layer(), "prob");
}

// As value 2.
void AddBadWeight(RunBuilder& run) {
  run.Value(2)
      .Propagate("aten::addmm")
      .At("2")
      .FromOutside(wire::Target::kParameter, "2.weight")
      .Nan();
}

// `op` met a bad tensor before any module was called; then a layer's weight is found bad.
RunBuilder WithBadWeightAfter(const std::string& op) {
  RunBuilder run;
  run.Value(1).External(op).Phase(wire::Phase::kOther).FromOutside(wire::Target::kInputData, "");
  AddBadWeight(run);
  return run;
}

// load_state_dict: a copy of what nobody knows yet to be a parameter.
TEST(KnownPrograms, TensorThatWasCopiedBeforeAnyModuleWasCalledIsTheParameterFoundBadThen) {
  RunBuilder run = WithBadWeightAfter("aten::copy_");
  run.Value(3).Propagate("aten::mean").From(2).Nan();
  run.Pass(4).Root(3);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().kind(), "parameter");
  EXPECT_EQ(verdict.incidents(0).origin().param(), "2.weight");
}

// torch.load makes it, load_state_dict copies it.
TEST(KnownPrograms, TensorOfACheckpointThatWasCopiedIsTheParameterFoundBadThen) {
  RunBuilder run = WithBadWeightAfter("aten::set_");
  run.Value(3).Propagate("aten::copy_").Phase(wire::Phase::kOther).From(1).Nan();
  run.Pass(4).Root(2);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().param(), "2.weight");
}

TEST(KnownPrograms, BatchThatIsBadBesideALoadedParameterIsToldByItself) {
  RunBuilder run = WithBadWeightAfter("aten::set_");
  run.Pass(3).Root(2);
  EXPECT_EQ(Correlate({run.Build()}).incidents_size(), 2);
}

// A batch that forward copies is none of the checkpoint, in the outermost module neither.
TEST(KnownPrograms, BatchThatAModuleCopiesBesideALoadedParameterIsToldByItself) {
  const auto incidents_with = [](const char* op, const std::string& layer,
                                 const std::string& type) {
    RunBuilder run;
    run.Value(1).External(op).At(layer, type).FromOutside(wire::Target::kInputData, "").Nan();
    AddBadWeight(run);
    run.Pass(3).Root(2);
    return Correlate({run.Build()}).incidents_size();
  };
  for (const char* op : {"aten::copy_", "aten::cat", "aten::clone"}) {
    EXPECT_EQ(incidents_with(op, "block", "Block"), 2) << op;
    EXPECT_EQ(incidents_with(op, "", "Net"), 2) << op;
    EXPECT_EQ(incidents_with(op, "", ""), 1) << op;
  }
}

// torch.load makes it, and the module keeps it in memory of its own.
TEST(KnownPrograms, BatchOfAFileThatAModuleCopiesIsNoLoadedParameter) {
  const auto incidents_with = [](const std::string& layer, const std::string& type) {
    RunBuilder run = WithBadWeightAfter("aten::set_");
    run.Value(3).Propagate("aten::copy_").At(layer, type).From(1).Nan();
    run.Pass(4).Root(2);
    return Correlate({run.Build()}).incidents_size();
  };
  EXPECT_EQ(incidents_with("block", "Block"), 2);
  EXPECT_EQ(incidents_with("", "Net"), 2);
  EXPECT_EQ(incidents_with("", ""), 1);
}

TEST(KnownPrograms, BatchOfAFileThatAModuleCopiesIntoItsBufferIsNoLoadedBuffer) {
  const auto origin_with = [](const std::string& layer, const std::string& type) {
    RunBuilder run;
    run.Value(1).External("aten::set_").Phase(wire::Phase::kOther).Nan();
    run.Value(2)
        .Propagate("aten::copy_")
        .At(layer, type)
        .From(1)
        .WroteBuffer("block.memory")
        .WithoutGradients()
        .Nan();
    run.Value(3).Propagate("aten::addmm").At("fc", "Linear").From(2).Nan();
    run.Pass(4).Root(3);
    return Correlate({run.Build()}).incidents(0).origin();
  };
  for (const auto& [layer, type] : {std::pair("block", "Block"), std::pair("", "Net")}) {
    EXPECT_EQ(origin_with(layer, type).kind(), "input_data") << type;
    EXPECT_EQ(origin_with(layer, type).op(), "aten::addmm") << type;
  }
  EXPECT_EQ(origin_with("", "").kind(), "buffer");
  EXPECT_EQ(origin_with("", "").param(), "block.memory");
}

// `self.fc.weight.div_(0)` in a forward: the op belongs to the module that runs it.
TEST(KnownPrograms, OpThatSpoilsAnotherModulesParameterIsOfTheModuleThatRunsIt) {
  const auto origin_with = [](const std::string& layer, const std::string& type) {
    RunBuilder run;
    run.Value(1).Produce("aten::div_").At(layer, type).WroteParameter("fc.weight").Nan();
    run.Pass(2).Root(1);
    return Correlate({run.Build()}).incidents(0).origin();
  };
  EXPECT_EQ(origin_with("block", "Block").layer(), "block");
  EXPECT_EQ(origin_with("", "Net").layer(), "");
  EXPECT_EQ(origin_with("", "Net").layer_type(), "Net");
  EXPECT_EQ(origin_with("", "").layer(), "fc");
}

}  // namespace
}  // namespace nanwatch
