// SPDX-License-Identifier: Apache-2.0
// Non-finite values that somebody asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/correlate/correlate.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

TEST(Masks, CausalMaskThatSoftmaxKillsIsExpected) {
  RunBuilder run;
  run.Value(1).Scalar("aten::full").At("1").NegInf();
  run.Value(2).Propagate("aten::triu").At("1").From(1).NegInf();
  run.Value(3).Propagate("aten::add").At("1").From(2).NegInf();
  run.Pass(9);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "expected");
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).severity(), "info");
  EXPECT_EQ(verdict.incidents(0).origin().class_(), "scalar");
  EXPECT_EQ(verdict.incidents(0).count(), 3u);
}

TEST(Masks, MaskKeptInARegisteredBufferIsExpected) {
  RunBuilder run;
  run.Value(1).Scalar("aten::masked_fill_").WroteBuffer("bias.causal").NegInf();
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "expected");
}

TEST(Masks, ClassThatIsSwitchedOffByAnInfiniteBiasIsExpected) {
  RunBuilder run;
  run.Value(1).Scalar("aten::fill_").WroteParameter("head.bias").NegInf();
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "expected");
}

// numpy, an extension or another thread has written it since: the op that reads it made nothing.
TEST(Masks, NanThatIsReadBesideAMaskAndThatNobodyMadeIsNotOfTheOpThatReadsIt) {
  RunBuilder run;
  run.Value(1).Scalar("aten::masked_fill").PosInf(1, 4);
  run.Value(2).Propagate("aten::index_select").From(1, wire::kHasNan).Nan(1, 4);
  run.Pass(3).Root(2);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_FALSE(verdict.incidents(0).origin().exact());
  EXPECT_NE(verdict.incidents(0).origin().class_(), "inf_to_nan");
}

// A history of rows that are NaN until they are filled, and a row that is bad by a fault.
TEST(Masks, RowThatGoesBadIsNamedBesideABufferThatDidNoHarm) {
  RunBuilder run;
  run.Value(1).Propagate("aten::cat").Step(0).FromOutside(wire::Target::kBuffer, "hist").Nan(7);
  run.Value(2).Propagate("aten::copy_").From(1).WroteBuffer("hist").Nan(7);
  run.Value(3).Produce("aten::div").Step(1).Nan(1);
  run.Value(4).Propagate("aten::cat").From(2).From(3).Nan(7);
  run.Value(5).Propagate("aten::copy_").From(4).WroteBuffer("hist").Nan(7);
  run.Value(6).Propagate("aten::mean").From(5).Nan(1, 1).NeedsGradient();
  run.Pass(7).Root(6);
  const Verdict verdict = Correlate({run.Build()});
  const Finding origin = verdict.incidents(0).origin();
  EXPECT_EQ(origin.op(), "aten::div");
  EXPECT_FALSE(origin.exact());
  EXPECT_THAT(origin.unseen(), testing::ElementsAre("beside"));
}

TEST(Masks, BufferWhoseRowsMoveOnIsExpected) {
  RunBuilder run;
  run.Value(1).Propagate("aten::cat").FromOutside(wire::Target::kBuffer, "hist").Nan(7);
  run.Value(2).Propagate("aten::copy_").From(1).WroteBuffer("hist").Nan(7);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "expected");
}

TEST(Masks, BufferThatIsComputedOfItselfOrCopiedIntoAnotherIsNone) {
  RunBuilder mean;
  mean.Value(1).Propagate("aten::mul").FromOutside(wire::Target::kBuffer, "mean").Nan(7);
  mean.Value(2).Propagate("aten::copy_").From(1).WroteBuffer("mean").Nan(7);
  EXPECT_EQ(Correlate({mean.Build()}).verdict(), "anomaly");
  RunBuilder copied;
  copied.Value(1).Propagate("aten::copy_").FromOutside(wire::Target::kBuffer, "old").Nan(7);
  copied.Value(2).Propagate("aten::copy_").From(1).WroteBuffer("mean").Nan(7);
  EXPECT_EQ(Correlate({copied.Build()}).verdict(), "anomaly");
}

TEST(Masks, BufferThatSpoiledALossIsNamedBesideWhatGoesBadLater) {
  RunBuilder run;
  run.Value(1).Propagate("aten::mul").Step(0).FromOutside(wire::Target::kBuffer, "scale").Nan();
  run.Pass(2).Root(1);
  run.Value(3).Produce("aten::div").Step(1).Nan(1);
  run.Value(4).Propagate("aten::mul").From(1).From(3).Nan();
  run.Pass(5).Root(4);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.incidents(0).origin().param(), "scale");
  EXPECT_TRUE(verdict.incidents(0).origin().exact());
}

// x = x.masked_fill(m, inf); torch.cat([x, torch.full(..., nan)], 1)[:, :4]
TEST(Masks, InfThatIsLeftOfATensorWithNanIsNotOfTheNan) {
  RunBuilder run;
  run.Value(1).Scalar("aten::full").Nan(4);
  run.Value(2).Scalar("aten::masked_fill").PosInf(2);
  run.Value(3).Propagate("aten::cat").From(2).From(1).Output([] {
    RecordTensor both;
    both.set_numel(12);
    both.set_nan(4);
    both.set_pos_inf(2);
    return both;
  }());
  run.Value(4).Propagate("aten::mean").From(3).PosInf(1, 1).NeedsGradient();
  run.Pass(5).Root(4);
  EXPECT_EQ(Correlate({run.Build()}).incidents(0).origin().op(), "aten::masked_fill");
}

TEST(Masks, NanThatIsMadeInfBesideAMaskIsStillOfTheNan) {
  RunBuilder run;
  run.Value(1).Produce("aten::log").Nan(1);
  run.Value(2).Scalar("aten::full").PosInf(2);
  run.Value(3).Propagate("aten::nan_to_num").From(1).From(2).PosInf(3);
  run.Value(4).Propagate("aten::mean").From(3).PosInf(1, 1).NeedsGradient();
  run.Pass(5).Root(4);
  EXPECT_EQ(Correlate({run.Build()}).incidents(0).origin().op(), "aten::log");
}

TEST(Masks, FaultThatIsPutAmongRowsThatMoveOnHasReachedTheBuffer) {
  RunBuilder run;
  run.Value(1).Propagate("aten::roll").FromOutside(wire::Target::kBuffer, "hist").Nan(6);
  run.Value(2).Produce("aten::log").Nan(1);
  run.Value(3).Propagate("aten::cat").From(1).From(2).Nan(7);
  run.Value(4).Propagate("aten::copy_").From(3).WroteBuffer("hist").Nan(7);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "anomaly");
}

TEST(Masks, BufferThatIsCopiedIntoAnotherOfItsNameHasReachedThat) {
  RunBuilder run;
  run.Value(1)
      .Propagate("aten::copy_")
      .FromOutside(wire::Target::kBuffer, "queue")
      .WroteBuffer("queue")
      .Nan(7);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "anomaly");
}

TEST(Masks, MaskThatIsMultipliedTogetherIsOne) {
  RunBuilder run;
  run.Value(1).Scalar("aten::mul_").NegInf();
  run.Value(2).Propagate("aten::triu_").From(1).WroteBuffer("mask").NegInf();
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "expected");
}

// Faults in two places of one tensor, of which a part is read.
TEST(Masks, PartOfWhatTwoFaultsWerePutIntoIsNotKnownForCertain) {
  const auto origin = [](int64_t numel) {
    RunBuilder run;
    run.Value(1).Produce("aten::div").Nan(1);
    run.Value(2).Produce("aten::sqrt").Nan(1);
    run.Value(3).Propagate("aten::add").From(1).From(2).Nan(1, numel);
    run.Value(4).Propagate("aten::mean").From(3).Nan(1, 1).NeedsGradient();
    run.Pass(5).Root(4);
    return Correlate({run.Build()}).incidents(0).origin();
  };
  EXPECT_FALSE(origin(8).exact());
  EXPECT_TRUE(origin(1).exact());
}

TEST(Masks, NegativeInfinityThatCameInAndIsNormalizedIsData) {
  RunBuilder run;
  run.Value(1)
      .InfToNan("aten::native_layer_norm")
      .FromOutside(wire::Target::kInputData, "", wire::kHasNegInf)
      .Nan();
  run.Pass(2).Root(1);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().kind(), "input_data");
}

TEST(Masks, ConstantThatIsTheLossIsStillAnAnomaly) {
  RunBuilder run;
  run.Value(1).Scalar("aten::masked_fill").NegInf();
  run.Value(2).Propagate("aten::mean").From(1).NegInf();
  run.Pass(3).Root(2);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.incidents(0).origin().class_(), "scalar");
}

TEST(Masks, ConstantThatIsTheLossIsTheOriginOfWhatItsGradientsBecome) {
  RunBuilder run;
  run.Value(1).Scalar("aten::masked_fill").NegInf();
  run.Value(2).Propagate("aten::mse_loss").From(1).PosInf(1, 1);
  run.Pass(3).Root(2);
  run.Value(4).InfToNan("aten::mm").At("fc").Backward("MmBackward0").InPass(1).From(2).Nan();
  run.Pass(5).Number(1).Leaf("fc.weight", 4);
  run.Value(6).InfToNan("aten::_foreach_norm").Phase(wire::Phase::kOther).From(2).Nan();
  run.Value(7).Propagate("aten::add_").Optimizer("fc.weight").From(4).From(6).Nan();
  run.Update(8).Parameter("fc.weight", 7);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::masked_fill");
  EXPECT_EQ(verdict.incidents(0).severity(), "critical");
}

TEST(Masks, MaskWrittenAsALogarithmAtEveryStepIsNotTheOriginOfALaterNan) {
  RunBuilder run;
  run.Value(1).Produce("aten::log").At("attn").Step(0).NegInf();
  run.Value(5).Produce("aten::log").At("attn").Step(4).NegInf();
  run.Value(6).InfToNan("aten::_softmax").At("attn").From(5).Nan();
  run.Pass(7).Root(6);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::_softmax");
  EXPECT_EQ(verdict.incidents(0).origin().step(), 4);
}

// The loss was NaN in step 1 already, and by luck no gradient was.
TEST(Masks, LogarithmThatHasSpoiledALossIsNoHabit) {
  RunBuilder run;
  run.Value(1).Produce("aten::log1p").At("head").Step(1).NegInf();
  run.Value(2).InfToNan("aten::_softmax").At("head").Step(1).From(1).Nan();
  run.Pass(3).Root(2);
  run.Value(4).Produce("aten::log1p").At("head").Step(2).NegInf();
  run.Value(5).InfToNan("aten::_softmax").At("head").Step(2).From(4).Nan();
  run.Pass(6).Root(5).Leaf("head.weight", 5);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.verdict(), "anomaly");
  for (const Incident& incident : verdict.incidents()) {
    EXPECT_TRUE(incident.severity() == "info" || incident.origin().op() == "aten::log1p");
  }
}

TEST(Masks, LogarithmOfABackwardPassIsNoMaskHoweverOftenItIsTaken) {
  RunBuilder run;
  run.Value(1).Produce("aten::log_").At("gate").Backward("LogsBackward").Step(0).NegInf();
  run.Value(5).Produce("aten::log_").At("gate").Backward("LogsBackward").Step(4).NegInf();
  run.Value(6).InfToNan("aten::add_").At("gate").Backward("AddBackward0").From(5).Nan();
  run.Update(7).Parameter("gate.weight", 6);
  EXPECT_EQ(Correlate({run.Build()}).incidents(0).origin().op(), "aten::log_");
}

TEST(Masks, NanOfAMaskThatMayBeNoneIsNotCertain) {
  RunBuilder run;
  run.Value(1).Scalar("aten::where").Flag(wire::ValueRecord::kUnseenInputs).NegInf();
  run.Value(2).InfToNan("aten::mul").From(1).Nan();
  run.Pass(3).Root(2);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::mul");
  EXPECT_FALSE(verdict.incidents(0).origin().exact());
  EXPECT_THAT(verdict.incidents(0).origin().unseen(), testing::ElementsAre("inputs"));
}

TEST(Masks, LogarithmOfZeroThatHappensForTheFirstTimeIsTheOrigin) {
  RunBuilder run;
  run.Value(5).Produce("aten::log").At("loss").Step(8).NegInf();
  run.Value(6).InfToNan("aten::mul").At("loss").From(5).Nan();
  run.Pass(7).Root(6);
  EXPECT_EQ(Correlate({run.Build()}).incidents(0).origin().op(), "aten::log");
}

TEST(Masks, ZeroTimesMaskedLogarithmIsTheOpThatMultiplied) {
  RunBuilder run;
  run.Step(3);
  run.Value(1).Scalar("aten::masked_fill").At("criterion").NegInf();
  run.Value(2).Propagate("aten::_log_softmax").At("criterion").From(1).NegInf();
  run.Value(3).InfToNan("aten::mul").At("criterion").From(2).Nan();
  run.Value(4).Propagate("aten::mean").At("criterion").From(3).Nan();
  run.Pass(5).Root(4);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::mul");
  EXPECT_EQ(verdict.incidents(0).origin().class_(), "inf_to_nan");
}

TEST(Masks, PaddingWithNanBesideMaskedScoresMakesNothingNew) {
  RunBuilder run;
  run.Value(1).Scalar("aten::masked_fill").At("scores").NegInf();
  run.Value(2).Scalar("aten::full").At("padding").Nan();
  run.Value(3).Propagate("aten::cat").At("padding").From(1).From(2).Nan();
  run.Value(4).InfToNan("aten::_softmax").At("attention").From(3).Nan();
  run.Pass(5).Root(4);
  EXPECT_EQ(Correlate({run.Build()}).incidents(0).origin().op(), "aten::_softmax");
}

TEST(Masks, OpThatIsSaidToPassOnAMaskAndMakesANanIsTheOrigin) {
  RunBuilder run;
  run.Value(1)
      .Propagate("aten::_softmax")
      .At("attn")
      .FromOutside(wire::Target::kBuffer, "attn.mask", wire::kHasNegInf)
      .Nan();
  run.Pass(2).Root(1);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.incidents(0).origin().kind(), "op");
  EXPECT_EQ(verdict.incidents(0).origin().class_(), "inf_to_nan");
}

TEST(Masks, NanLabelsThatAreDroppedAreExpected) {
  RunBuilder run;
  run.Value(1).External("aten::index").FromOutside(wire::Target::kInputData, "y").Nan();
  run.Pass(4);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "expected");
  EXPECT_EQ(verdict.incidents(0).origin().kind(), "input_data");
}

TEST(Masks, RealProducerBeforeTheMaskIsTheOrigin) {
  RunBuilder run;
  run.Value(1).Produce("aten::sqrt").At("q").Nan();
  run.Value(2).Scalar("aten::full").NegInf();
  run.Value(3).Propagate("aten::add").From(1).From(2).Nan();
  run.Pass(4).Root(3);
  EXPECT_EQ(Correlate({run.Build()}).incidents(0).origin().op(), "aten::sqrt");
}

// A target of -Inf looks like a mask until it is the loss; what the update makes of it is no more.
TEST(Masks, WhatHasBecomeTheLossIsNoneForTheUpdate) {
  RunBuilder run;
  run.Value(1)
      .Propagate("aten::sub")
      .FromOutside(wire::Target::kInputData, "", wire::kHasNegInf)
      .PosInf();
  run.Value(2).Propagate("aten::mean").From(1).PosInf(1, 1);
  run.Pass(3).Root(2);
  run.Value(4).Propagate("aten::sum").Backward("AddBackward0").InPass(3).From(1).PosInf();
  run.Pass(5).Number(3).Leaf("fc.bias", 4);
  run.Value(6)
      .InfToNan("aten::addcdiv_")
      .Phase(wire::Phase::kOptimizer)
      .From(4, wire::kHasPosInf)
      .WroteParameter("fc.bias")
      .Nan();
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().kind(), "input_data");
  EXPECT_THAT(verdict.incidents(0).reach(), testing::Contains("parameter"));
}

}  // namespace
}  // namespace nanwatch
