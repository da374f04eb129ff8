// SPDX-License-Identifier: Apache-2.0
// For each known cause a finding that it must explain, and one that resembles it and that it must
// not.
#include <gtest/gtest.h>

#include <string>

#include "tests/daemon/explain/pattern_program.h"

namespace nanwatch {
namespace {

TEST(Patterns, SoftmaxOverAFullyMaskedRow) {
  const Pattern pattern = PatternOfLoss([](ValueBuilder& value) {
    value.InfToNan("aten::_softmax")
        .At("layers.0.self_attn")
        .Input(WithNegInf(Tensor({8, 4, 32, 32}), 11264))
        .Output(WithNan(Tensor({8, 4, 32, 32}), 1024, 12288));
  });
  EXPECT_EQ(pattern.id(), "softmax-fully-masked-row");
  EXPECT_EQ(pattern.evidence(), "first such row at [3, 0, 0, 0]; 11,264 of 32,768 scores are -Inf");
}
TEST(Patterns, SoftmaxOverAFullyMaskedRowWhoseInputNobodySaw) {
  const Pattern pattern = PatternOfLoss([](ValueBuilder& value) {
    value.InfToNan("aten::_softmax").Output(WithNan(Tensor({8, 32}), 32, 96));
  });
  EXPECT_EQ(pattern.id(), "softmax-fully-masked-row");
  EXPECT_EQ(pattern.evidence(), "first such row at [3, 0]; 32 of 256 weights are NaN");
}
TEST(Patterns, SoftmaxOfAnInfiniteScoreIsNoMaskedRow) {
  const Pattern pattern = PatternOfLoss([](ValueBuilder& value) {
    value.InfToNan("aten::_softmax").Input(WithPosInf(Tensor({8, 32}), 1)).Nan();
  });
  EXPECT_NE(pattern.id(), "softmax-fully-masked-row");
}

TEST(Patterns, LogSoftmaxOverMaskedClasses) {
  EXPECT_EQ(
      PatternOfLoss([](ValueBuilder& value) { value.InfToNan("aten::_log_softmax").Nan(); }).id(),
      "log-softmax-fully-masked-row");
  EXPECT_NE(
      PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::_log_softmax").Nan(); }).id(),
      "log-softmax-fully-masked-row");
}

TEST(Patterns, LogOfZeroAndLogOfNegativeAreToldApart) {
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::log").NegInf(); }).id(),
            "log-of-zero");
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::log_").Nan(); }).id(),
            "log-of-negative");
  EXPECT_NE(PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::logdet").Nan(); }).id(),
            "log-of-negative");
}

TEST(Patterns, ZeroTimesInfinity) {
  RunBuilder run;
  run.Value(1).Scalar("aten::masked_fill").NegInf();
  run.Value(2).InfToNan("aten::mul").From(1).Nan();
  run.Pass(3).Root(2);
  EXPECT_EQ(Diagnose({run.Build()}).incidents(0).pattern().id(), "zero-times-infinity");
  EXPECT_NE(PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::mul").Nan(); }).id(),
            "zero-times-infinity");
}

TEST(Patterns, InfinityMinusInfinity) {
  EXPECT_EQ(PatternOfGradient([](ValueBuilder& value) {
              value.InfToNan("aten::sub").Backward("SubBackward0").Nan();
            }).id(),
            "infinity-minus-infinity");
  EXPECT_NE(PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::sub").PosInf(); }).id(),
            "infinity-minus-infinity");
}

TEST(Patterns, DivisionByZero) {
  const Pattern pattern = PatternOfLoss([](ValueBuilder& value) {
    value.Produce("aten::div")
        .Input(Range(Tensor({4, 8}), -1, 1))
        .Input(Range(Tensor({4, 1}), 0, 4))
        .Output(WithPosInf(Tensor({4, 8}), 8, 16));
  });
  EXPECT_EQ(pattern.id(), "division-by-zero");
  EXPECT_EQ(pattern.evidence(), "8 of 32 values, first at [2, 0]; divisor from 0 to 4");
}
TEST(Patterns, DivisionByADivisorFarFromZeroIsNoDivisionByZero) {
  EXPECT_NE(
      PatternOfLoss([](ValueBuilder& value) {
        value.Produce("aten::div").Input(Tensor({4})).Input(Range(Tensor({4}), 1e-30, 4)).PosInf();
      }).id(),
      "division-by-zero");
}

TEST(Patterns, DivisionByZeroInBackward) {
  EXPECT_EQ(PatternOfGradient([](ValueBuilder& value) {
              value.Produce("aten::div").Backward("DivBackward0").Nan();
            }).id(),
            "division-by-zero-in-backward");
}

TEST(Patterns, SlopeOfASquareRootAtZero) {
  EXPECT_EQ(PatternOfGradient([](ValueBuilder& value) {
              value.Produce("aten::div").Backward("SqrtBackward0").At("dist").PosInf();
            }).id(),
            "sqrt-slope-at-zero");
  EXPECT_NE(PatternOfGradient([](ValueBuilder& value) {
              value.Propagate("aten::div").Backward("SqrtBackward0").FromUnknown().PosInf();
            }).id(),
            "sqrt-slope-at-zero");
}

TEST(Patterns, SlopeOfAnArcAtOne) {
  EXPECT_EQ(PatternOfGradient([](ValueBuilder& value) {
              value.Produce("aten::rsqrt").Backward("AcosBackward0").PosInf();
            }).id(),
            "arc-slope-at-one");
  EXPECT_NE(PatternOfGradient([](ValueBuilder& value) {
              value.Produce("aten::rsqrt").Backward("RsqrtBackward0").PosInf();
            }).id(),
            "arc-slope-at-one");
  EXPECT_EQ(PatternOfGradient([](ValueBuilder& value) {
              value.Produce("aten::rsqrt").Backward("AcoshBackward0").PosInf();
            }).id(),
            "acosh-slope-at-one");
  EXPECT_EQ(PatternOfGradient([](ValueBuilder& value) {
              value.Produce("aten::rsqrt").Backward("AsinhBackward0").PosInf();
            }).id(),
            "");
}

TEST(Patterns, DeadBranchThatBackwardRevives) {
  const Pattern pattern = PatternOfGradient(
      [](ValueBuilder& value) { value.Produce("aten::sqrt").At("valves.main").Nan(); });
  EXPECT_EQ(pattern.id(), "dead-branch-in-backward");
  EXPECT_NE(pattern.fix().find("sqrt(torch.where(ok, x, 1))"), std::string::npos);
  EXPECT_NE(PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::sqrt").Nan(); }).id(),
            "dead-branch-in-backward");
}

// A tensor that is kept for some steps, and then computed with: its loss is NaN as well.
TEST(Patterns, WhatSpoilsTheLossLaterIsNoDeadBranch) {
  RunBuilder run;
  run.Value(1).Produce("aten::log").Step(1).Nan();
  run.Step(3);
  run.Value(2).Propagate("aten::mul").From(1).Nan();
  run.Pass(3).Root(2).Leaf("w", 2);
  EXPECT_EQ(Diagnose({run.Build()}).incidents(0).pattern().id(), "log-of-negative");
}

TEST(Patterns, GradientThatCameFromOutsideIsNoBatch) {
  RunBuilder run;
  run.Value(1).External("aten::mul").Backward("MulBackward0").Step(2).Nan();
  run.Pass(2).Leaf("w", 1);
  EXPECT_EQ(Diagnose({run.Build()}).incidents(0).pattern().id(), "gradient-from-outside");
}

TEST(Patterns, RootOfANegativeNumber) {
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::rsqrt").Nan(); }).id(),
            "root-of-negative");
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::rsqrt").PosInf(); }).id(),
            "rsqrt-of-zero");
}

TEST(Patterns, EpsThatIsZeroInHalfPrecision) {
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) {
              value.Produce("aten::rsqrt").Output(WithPosInf(Half(Tensor({4, 1})), 1, 1));
            }).id(),
            "eps-lost-in-half-precision");
}

TEST(Patterns, PowerOfANegativeNumber) {
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::pow").Nan(); }).id(),
            "power-of-negative");
  EXPECT_NE(PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::pow").PosInf(); }).id(),
            "power-of-negative");
}

TEST(Patterns, DeviationOfOneElement) {
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) {
              value.Produce("aten::std").Input(Tensor({1, 8})).Nan();
            }).evidence(),
            "input [1, 8]");
  EXPECT_NE(PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::std").PosInf(); }).id(),
            "std-of-one-element");
}

TEST(Patterns, MeanOfNothing) {
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) {
              value.Produce("aten::mean").Input(Tensor({0, 3})).Nan(1, 1);
            }).id(),
            "mean-of-nothing");
  EXPECT_NE(PatternOfLoss([](ValueBuilder& value) {
              value.Produce("aten::mean").Input(Tensor({4, 3})).Nan(1, 1);
            }).id(),
            "mean-of-nothing");
  // Of nothing all means are NaN.
  EXPECT_NE(PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::mean").Nan(1, 8); }).id(),
            "mean-of-nothing");
}

TEST(Patterns, NoTargetIsKept) {
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) {
              value.Produce("aten::nll_loss_forward").Nan(1, 1);
            }).id(),
            "no-target-kept");
  EXPECT_NE(PatternOfLoss([](ValueBuilder& value) {
              value.Produce("aten::nll_loss_forward").PosInf(1, 1);
            }).id(),
            "no-target-kept");
}

TEST(Patterns, ExponentialOverflow) {
  const Pattern pattern = PatternOfLoss([](ValueBuilder& value) {
    value.Produce("aten::exp")
        .Input(Range(Tensor({8, 3}), -20, 120.5))
        .Output(WithPosInf(Tensor({8, 3}), 1, 2));
  });
  EXPECT_EQ(pattern.id(), "exp-overflow");
  EXPECT_EQ(pattern.evidence(), "largest argument 120.5 in float32, first at [0, 2]");
  EXPECT_NE(PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::exp").Nan(); }).id(),
            "exp-overflow");
}

TEST(Patterns, ResultBeyondHalfPrecision) {
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) {
              value.Produce("aten::addmm").Output(WithPosInf(Half(Tensor({4, 16})), 3));
            }).id(),
            "half-precision-overflow");
  EXPECT_NE(PatternOfLoss([](ValueBuilder& value) {
              value.Produce("aten::addmm").Output(WithPosInf(Tensor({4, 16}), 3));
            }).id(),
            "half-precision-overflow");
}

TEST(Patterns, AdamDividesZeroByZero) {
  const auto pattern_of = [](const char* op) {
    return PatternOfUpdate(
        [op](ValueBuilder& value) { value.Produce(op).Optimizer("gate.weight").Nan(); });
  };
  EXPECT_EQ(pattern_of("aten::addcdiv_").id(), "adam-zero-over-zero");
  EXPECT_EQ(pattern_of("aten::_fused_adamw_").id(), "adam-zero-over-zero");
  EXPECT_NE(pattern_of("aten::add_").id(), "adam-zero-over-zero");
  EXPECT_EQ(pattern_of("aten::addcdiv_").evidence(),
            "float32 parameter gate.weight, 1 of 8 values");
  const auto of_inf = [](const RecordTensor& output) {
    return PatternOfUpdate([&output](ValueBuilder& value) {
             value.Produce("aten::addcdiv_").Optimizer("gate.weight").Output(output);
           })
        .id();
  };
  EXPECT_EQ(of_inf(WithPosInf(Tensor({8}))), "update-overflow");
  EXPECT_EQ(of_inf(WithPosInf(Half(Tensor({8})))), "adam-eps-lost-in-half-precision");
  // Of a parameter of one number all of it is bad at once.
  EXPECT_EQ(of_inf(WithNan(Tensor({1}))), "adam-zero-over-zero");
  EXPECT_EQ(of_inf(WithNan(Tensor({8}), 8)), "update-bad-everywhere");
}

TEST(Patterns, TheEpsOfFloat16IsAdvisedForFloat16Alone) {
  const auto pattern_of = [](const RecordTensor& output) {
    return PatternOfUpdate([&output](ValueBuilder& value) {
      value.Produce("aten::addcdiv_").Optimizer("gate.weight").Output(output);
    });
  };
  const Pattern half = pattern_of(WithNan(Half(Tensor({8})), 3));
  EXPECT_EQ(half.id(), "adam-eps-lost-in-half-precision");
  EXPECT_NE(half.fix().find("1e-4"), std::string::npos);
  const Pattern single = pattern_of(WithNan(Tensor({8}), 3));
  EXPECT_EQ(single.id(), "adam-zero-over-zero");
  EXPECT_EQ(single.cause().find("half"), std::string::npos);
  EXPECT_EQ(single.fix().find("float16"), std::string::npos);
}

TEST(Patterns, NanInTheBatch) {
  const Pattern pattern = PatternOfLoss([](ValueBuilder& value) {
    value.External("aten::addmm")
        .FromOutside(wire::Target::kInputData, "x")
        .Input(WithNan(Tensor({8, 4}, "mat1"), 1, 22))
        .Nan();
  });
  EXPECT_EQ(pattern.id(), "nan-in-batch");
  EXPECT_EQ(pattern.evidence(), "1 of 32 values, first at [5, 2]; first used by aten::addmm");
}

TEST(Patterns, BadTargetIsToldFromABadBatch) {
  const Pattern pattern = PatternOfLoss([](ValueBuilder& value) {
    value.External("aten::mse_loss")
        .FromOutside(wire::Target::kInputData, "y")
        .Input(Tensor({8, 4}, "self"))
        .Input(WithNan(Tensor({8, 4}, "target"), 1, 22))
        .Nan();
  });
  EXPECT_EQ(pattern.id(), "bad-target");
  EXPECT_EQ(pattern.evidence(), "1 of 32 values of the target, first at [5, 2]");
}

TEST(Patterns, ParameterThatWasBadFromTheStart) {
  const auto pattern_of = [](uint32_t step) {
    RunBuilder run;
    run.Value(1)
        .External("aten::addmm")
        .Step(step)
        .FromOutside(wire::Target::kParameter, "layers.0.bias")
        .Nan();
    run.Pass(2).Root(1);
    run.Ended(OptimizerClocks({9}));
    return Diagnose({run.Build()}).incidents(0).pattern();
  };
  EXPECT_EQ(pattern_of(0).id(), "parameter-never-initialised");
  EXPECT_EQ(pattern_of(6).id(), "parameter-loaded-bad");
  EXPECT_NE(pattern_of(6).cause().find("layers.0.bias"), std::string::npos);
}

TEST(Patterns, BufferWithNan) {
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) {
              value.Propagate("aten::mm").FromOutside(wire::Target::kBuffer, "bank.values").Nan();
            }).id(),
            "buffer-with-nan");
}

TEST(Patterns, RunningVarianceOfOneValue) {
  const auto pattern_of = [](uint32_t argument) {
    RunBuilder run;
    RecordTensor written = WithNan(Tensor({6}), 6, 0);
    written.set_index(argument);
    run.Value(1)
        .Produce("aten::native_batch_norm")
        .Output(written)
        .WroteBuffer("aspp.1.running_var");
    return Diagnose({run.Build()}).incidents(0).pattern();
  };
  EXPECT_EQ(pattern_of(4).id(), "batch-norm-variance-of-one-value");
  EXPECT_NE(pattern_of(3).id(), "batch-norm-variance-of-one-value");  // running_mean
}

TEST(Patterns, TargetLongerThanItsInput) {
  EXPECT_EQ(
      PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::_ctc_loss").PosInf(); }).id(),
      "ctc-target-longer-than-input");
  EXPECT_NE(PatternOfLoss([](ValueBuilder& value) {
              value.Propagate("aten::_ctc_loss").FromUnknown().PosInf();
            }).id(),
            "ctc-target-longer-than-input");
}

TEST(Patterns, WeightNormOfAZeroRow) {
  EXPECT_EQ(
      PatternOfLoss([](ValueBuilder& value) {
        value.Produce("aten::_weight_norm_interface").Output(WithNan(Tensor({12, 12}), 12, 60));
      }).evidence(),
      "first at row 5 of [12, 12]");
}

TEST(Patterns, LayerNormOfHugeInputs) {
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) {
              value.Produce("aten::native_layer_norm").Nan();
            }).id(),
            "layer-norm-overflow");
}

TEST(Patterns, ValuesThatGrewUntilTheyOverflowed) {
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) {
              value.Produce("aten::pow").Output(Range(WithPosInf(Tensor({32, 1}), 4), 0, 3e37));
            }).id(),
            "blow-up");
  // An overflow among small numbers has another cause.
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) {
              value.Produce("aten::pow").Output(Range(WithPosInf(Tensor({32, 1}), 4), 0, 3));
            }).id(),
            "infinite-power");
}

TEST(Patterns, ValueFromARankThatNobodyWatched) {
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) {
              value.Received("c10d::allreduce_").FromCollective("default", 3).Nan();
            }).id(),
            "received-from-another-rank");
}

TEST(Patterns, ValueMadeInsideACompiledRegion) {
  const Pattern pattern = PatternOfLoss([](ValueBuilder& value) {
    value.Produce("Torch-Compiled Region: 0/0").Output(WithNan(Tensor({4, 3}), 3, 6));
  });
  EXPECT_EQ(pattern.id(), "inside-compiled-region");
  EXPECT_NE(pattern.fix().find("TORCHDYNAMO_DISABLE=1"), std::string::npos);
  EXPECT_EQ(pattern.evidence(), "3 of 12 values returned by the region, first at [2, 0]");
  // What only passed through a region is not explained by it.
  EXPECT_NE(PatternOfLoss([](ValueBuilder& value) {
              value.Propagate("Torch-Compiled Region: 0/0").FromUnknown().Nan();
            }).id(),
            "inside-compiled-region");
}

TEST(Patterns, WhatIsExpectedGetsNoRemedy) {
  RunBuilder run;
  run.Value(1).External("aten::index").FromOutside(wire::Target::kInputData, "y").Nan();
  EXPECT_FALSE(Diagnose({run.Build()}).incidents(0).has_pattern());
}

TEST(Patterns, UnknownCauseGetsNoPattern) {
  EXPECT_EQ(PatternOfLoss([](ValueBuilder& value) { value.Produce("aten::lgamma").Nan(); }).id(),
            "");
}

}  // namespace
}  // namespace nanwatch
