// SPDX-License-Identifier: Apache-2.0
// The first pattern that fits wins: for each that stands before a more general one, a finding that
// both fit.
#include <gtest/gtest.h>

#include <string>

#include "tests/daemon/explain/pattern_program.h"

namespace nanwatch {
namespace {

TEST(PatternOrder, CastIsToldWithTheValueBeforeIt) {
  const Pattern pattern = PatternOfLoss([](ValueBuilder& value) {
    value.Produce("aten::_to_copy")
        .Input(Range(Tensor({4, 8}), -3, 72000))
        .Output(WithPosInf(Half(Tensor({4, 8}))));
  });
  EXPECT_EQ(pattern.id(), "cast-overflow");
  EXPECT_EQ(pattern.evidence(), "largest value 72,000, largest float16 65,504; 1 of 32 values");
}

TEST(PatternOrder, CastWhoseInputNobodySaw) {
  const Pattern pattern = PatternOfLoss([](ValueBuilder& value) {
    value.Produce("aten::_to_copy")
        .Output(WithPosInf(Of(wire::ElementType::kBFloat16, Tensor({4, 8}))));
  });
  EXPECT_EQ(pattern.evidence(),
            "1 of 32 values beyond 3.39e+38, the largest bfloat16, first at [0, 0]");
}

TEST(PatternOrder, TwoMasksOfTheLowestNumberAreNoBlowUp) {
  const auto of_finite = [](double min) {
    return PatternOfLoss([min](ValueBuilder& value) {
             value.Produce("aten::add").Output(Range(WithNegInf(Tensor({4, 8})), min, 0));
           })
        .id();
  };
  EXPECT_EQ(of_finite(-3.4e38), "masks-added");
  EXPECT_EQ(of_finite(-1e37), "blow-up");
}

// Of one number nothing finite is left that could be a mask.
TEST(PatternOrder, OneNumberThatDivergesIsNoMask) {
  EXPECT_EQ(
      PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::add").NegInf(1, 1); }).id(),
      "blow-up");
}

TEST(PatternOrder, ExponentialBehindAQuotientIsNoDeadBranch) {
  const auto of = [](const char* op) {
    return PatternOfGradient([op](ValueBuilder& value) { value.Produce(op).PosInf(); }).id();
  };
  EXPECT_EQ(of("aten::exp"), "exp-overflow-in-backward");
  EXPECT_EQ(of("aten::reciprocal"), "dead-branch-in-backward");
}

TEST(PatternOrder, DivisionInHalfPrecisionAndInSingle) {
  const auto of = [](const RecordTensor& output) {
    return PatternOfLoss([&](ValueBuilder& value) { value.Produce("aten::div").Output(output); })
        .id();
  };
  EXPECT_EQ(of(WithPosInf(Half(Tensor({4, 8})))), "division-by-zero-in-half-precision");
  EXPECT_EQ(of(WithPosInf(Tensor({4, 8}))), "division-by-zero");
}

TEST(PatternOrder, DivisorOfHalfPrecisionThatIsFarFromZeroMadeAnOverflow) {
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) {
              value.Produce("aten::div")
                  .Input(Half(Tensor({4, 8})))
                  .Input(Range(Half(Tensor({4, 8})), 1e-6, 1))
                  .Output(WithPosInf(Half(Tensor({4, 8}))));
            }).id(),
            "half-precision-overflow");
}

TEST(PatternOrder, ZeroOverZeroInASingleNumberIsACount) {
  const auto of_numel = [](int64_t numel) {
    return PatternOfLoss([=](ValueBuilder& value) { value.Produce("aten::div").Nan(1, numel); })
        .id();
  };
  EXPECT_EQ(of_numel(1), "zero-over-zero-count");
  EXPECT_EQ(of_numel(8), "division-by-zero");
}

TEST(PatternOrder, GradientInHalfPrecision) {
  EXPECT_EQ(
      PatternOfLoss([](ValueBuilder& value) {
        value.Produce("aten::mm").Backward("AddmmBackward0").Output(WithPosInf(Half(Tensor({4}))));
      }).id(),
      "gradient-overflow-in-half-precision");
}

TEST(PatternOrder, FunctionWrittenInPythonIsToldFromThoseOfTorch) {
  const auto in_node = [](const char* node) {
    return PatternOfLoss(
               [node](ValueBuilder& value) { value.Produce("aten::div").Backward(node).Nan(); })
        .id();
  };
  EXPECT_EQ(in_node("LengthBackward"), "custom-function-backward");
  EXPECT_EQ(in_node(""), "division-by-zero-in-hook");
  EXPECT_EQ(in_node("DivBackward0"), "division-by-zero-in-backward");
  EXPECT_EQ(in_node("CompiledFunctionBackward"), "division-by-zero-in-backward");
  EXPECT_EQ(in_node("SyncBatchNormBackward"), "division-by-zero-in-backward");
  EXPECT_EQ(in_node("CheckpointFunctionBackward"), "division-by-zero-in-backward");
}

TEST(PatternOrder, QuotientInBackwardOfHalfPrecisionOrOfAFarDivisor) {
  const auto of = [](const char* node, const RecordTensor& divisor, const RecordTensor& output) {
    return PatternOfGradient([&](ValueBuilder& value) {
             value.Produce("aten::div").Backward(node).Input(divisor).Input(divisor).Output(output);
           })
        .id();
  };
  const RecordTensor zero = Range(Tensor({4}), 0, 1);
  const RecordTensor far = Range(Tensor({4}), 1e-3, 1);
  const RecordTensor bad = WithPosInf(Tensor({4}));
  EXPECT_EQ(of("DivBackward0", zero, bad), "division-by-zero-in-backward");
  EXPECT_EQ(of("DivBackward0", far, bad), "");
  EXPECT_EQ(of("DivBackward0", zero, WithPosInf(Half(Tensor({4})))),
            "gradient-overflow-in-half-precision");
  EXPECT_EQ(of("LengthBackward", zero, WithPosInf(Half(Tensor({4})))),
            "gradient-overflow-in-half-precision");
}

// Whoever has a GradScaler that skips needs no advice to use one.
TEST(PatternOrder, GradientOfAScalerThatSkipsOften) {
  const auto after_skips = [](uint32_t skips) {
    RunBuilder run;
    Clocks clocks = OptimizerClocks({4});
    clocks.set_scaler_skips(skips);
    run.Clock(clocks);
    run.Value(1).Produce("aten::mm").Backward("MmBackward0").Output(WithPosInf(Half(Tensor({4}))));
    run.Pass(2).Leaf("fc.weight", 1);
    run.ScalerSkip(3, 0.5, 2);
    return Diagnose({run.Build()}).incidents(0).pattern().id();
  };
  EXPECT_EQ(after_skips(12), "scaler-keeps-skipping");
  EXPECT_EQ(after_skips(2), "gradient-overflow-in-half-precision");
}

TEST(PatternOrder, ScoreOfPlusInfinityIsNoMaskedRow) {
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) {
              value.InfToNan("aten::_softmax").Input(WithPosInf(WithNegInf(Tensor({4, 8})))).Nan();
            }).id(),
            "softmax-of-plus-infinity");
  EXPECT_EQ(PatternOfGradient([](ValueBuilder& value) {
              value.InfToNan("aten::_softmax_backward_data").Input(WithPosInf(Tensor({4}))).Nan();
            }).id(),
            "infinity-into-another-op");
}

TEST(PatternOrder, NormThatIsNoNormalisation) {
  const auto of = [](const char* op) {
    return PatternOfLoss([op](ValueBuilder& value) { value.InfToNan(op).Nan(); }).id();
  };
  EXPECT_EQ(of("aten::native_layer_norm"), "infinity-in-normalisation");
  EXPECT_EQ(of("aten::_fused_rms_norm"), "infinity-in-normalisation");
  EXPECT_EQ(of("aten::native_layer_norm_backward"), "infinity-into-another-op");
  EXPECT_EQ(of("aten::_weight_norm_interface"), "infinity-into-another-op");
  EXPECT_EQ(of("aten::linalg_vector_norm"), "infinity-into-another-op");
}

TEST(PatternOrder, PowerOfOneNumberIsNotOutOfScale) {
  const auto of = [](const char* op) {
    return PatternOfLoss([op](ValueBuilder& value) { value.Produce(op).PosInf(1, 1); }).id();
  };
  EXPECT_EQ(of("aten::pow"), "infinite-power");
  EXPECT_EQ(of("aten::mul"), "blow-up");
  EXPECT_EQ(of("aten::_foreach_div"), "");
}

TEST(PatternOrder, NumberThatOnlyAMisspeltConstantExplains) {
  const auto of = [](const char* op) {
    return PatternOfLoss([op](ValueBuilder& value) { value.Produce(op).Nan(8, 8); }).id();
  };
  EXPECT_EQ(of("aten::mul"), "number-is-nan");
  // The sum inside a matrix product can overflow both ways, and the two products inside one of
  // complex numbers: nobody knows by a NaN alone.
  EXPECT_EQ(of("aten::addmm"), "");
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) {
              value.Produce("aten::mul")
                  .Output(WithNan(Of(wire::ElementType::kComplex64, Tensor({8})), 8));
            }).id(),
            "");
}

TEST(PatternOrder, ProductWithAnInfiniteNumberIsNoneWithNan) {
  const auto of = [](const RecordTensor& output) {
    return PatternOfLoss([&](ValueBuilder& value) { value.Scalar("aten::mul").Output(output); });
  };
  EXPECT_EQ(of(WithPosInf(WithNan(Tensor({8}), 3), 5)).id(), "number-is-infinite");
  const Pattern pattern = of(WithNan(Tensor({8}), 8));
  EXPECT_EQ(pattern.id(), "number-is-nan");
  EXPECT_NE(pattern.cause().find("in a product with 0, Inf"), std::string::npos);
  EXPECT_EQ(of(WithPosInf(Tensor({8}), 8)).id(), "infinity-asked-for");
}

// All of it is NaN, and nobody has read what went in: that need not be an overflow.
TEST(PatternOrder, NanAloneIsNoBlowUpUnlessSomethingLargeWasSeen) {
  const auto of = [](double largest) {
    return PatternOfLoss([=](ValueBuilder& value) {
             value.Produce("aten::sum");
             if (largest > 0) value.Input(Range(Tensor({8}), -largest, largest));
             value.Output(WithNan(Tensor({}), 1));
           })
        .id();
  };
  EXPECT_EQ(of(0), "");
  EXPECT_EQ(of(1), "");
  EXPECT_EQ(of(3e38), "blow-up");
}

TEST(PatternOrder, PowerOfZeroInAnUpdateIsNoStepThatIsTooLarge) {
  EXPECT_EQ(PatternOfUpdate([](ValueBuilder& value) {
              value.Produce("aten::pow").Optimizer("gate.weight").PosInf();
            }).id(),
            "infinite-power");
}

TEST(PatternOrder, InverseOfZeroInAnUpdateIsNoStepThatIsTooLarge) {
  EXPECT_EQ(PatternOfUpdate([](ValueBuilder& value) {
              value.Produce("aten::reciprocal").Optimizer("gate.weight").PosInf();
            }).id(),
            "division-by-zero-in-update");
}

// Ops that write into gradients by hand are no branch of the forward.
TEST(PatternOrder, DivisionOfAGradientIsNoDeadBranch) {
  const auto of = [](const char* op, bool by_backward) {
    RunBuilder run;
    run.Value(1).Produce(op).InputsUnseen().Nan();
    if (by_backward) run.Value(2).Propagate("aten::mul").Backward("MulBackward0").From(1).Nan();
    run.Pass(3).Leaf("fc.weight", by_backward ? 2 : 1);
    run.Update(4).Parameter("fc.weight", by_backward ? 2 : 1);
    return Diagnose({run.Build()}).incidents(0).pattern().id();
  };
  EXPECT_EQ(of("aten::div", true), "dead-branch-in-backward");
  EXPECT_EQ(of("aten::div", false), "division-by-zero");
  EXPECT_EQ(of("aten::div_", false), "division-by-zero");
}

TEST(PatternOrder, SecondMomentThatOverflowsIsNoDivisionByZero) {
  const auto of = [](const char* op, bool parameter) {
    RunBuilder run;
    ValueBuilder& value = run.Value(1).Produce(op).PosInf();
    parameter ? value.Optimizer("gate.weight") : value.Phase(wire::Phase::kOptimizer).WroteState();
    UpdateBuilder update = run.Update(2);
    parameter ? update.Parameter("gate.weight", 1) : update.State("gate.weight", 1);
    return Diagnose({run.Build()}).incidents(0).pattern().id();
  };
  EXPECT_EQ(of("aten::_fused_adamw_", false), "second-moment-overflow");
  EXPECT_EQ(of("aten::_fused_adamw_", true), "update-overflow");
  EXPECT_EQ(of("aten::add_", true), "update-overflow");
  EXPECT_EQ(of("aten::addcmul_", true), "squared-gradient-overflow");
}

TEST(PatternOrder, RatioOfNormsIsNoSecondMoment) {
  const auto of = [](std::initializer_list<int64_t> shape) {
    RunBuilder run;
    run.Value(1).Produce("aten::div").Optimizer("gate.weight").Output(WithNan(Tensor(shape)));
    run.Update(2).Parameter("gate.weight", 1);
    return Diagnose({run.Build()}).incidents(0).pattern().id();
  };
  EXPECT_EQ(of({}), "division-by-zero-in-update");
  EXPECT_EQ(of({1}), "adam-zero-over-zero");
}

TEST(PatternOrder, WhatWentBadWhileNobodyWatchedWasNotLoaded) {
  const auto of = [](uint32_t unseen) {
    RunBuilder run;
    run.Step(5);
    run.Value(1)
        .External("aten::addmm")
        .At("gate")
        .FromOutside(wire::Target::kParameter, "gate.weight")
        .Flag(unseen)
        .Nan();
    run.Pass(2).Root(1).Leaf("gate.weight", 1);
    return Diagnose({run.Build()}).incidents(0).pattern().id();
  };
  EXPECT_EQ(of(wire::ValueRecord::kUnseenLevel), "bad-while-unwatched");
  EXPECT_EQ(of(0), "parameter-loaded-bad");
}

}  // namespace
}  // namespace nanwatch
