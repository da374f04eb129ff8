// The first pattern that fits wins: for each that stands before a more general one, a finding that
// both fit.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "daemon/explain/explain.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

RecordTensor Of(wire::ElementType type, RecordTensor tensor) {
  tensor.set_element_type(static_cast<uint32_t>(type));
  return tensor;
}
RecordTensor PosInf(RecordTensor tensor) {
  tensor.set_pos_inf(1);
  tensor.set_first_bad(0);
  return tensor;
}
RecordTensor NegInf(RecordTensor tensor) {
  tensor.set_neg_inf(1);
  tensor.set_first_bad(0);
  return tensor;
}
RecordTensor Range(RecordTensor tensor, double min, double max) {
  tensor.set_finite_min(min);
  tensor.set_finite_max(max);
  return tensor;
}
RecordTensor Half(RecordTensor tensor) {
  return Of(wire::ElementType::kFloat16, std::move(tensor));
}

// Of a run in which value 1 becomes the loss at step 4.
Pattern PatternOf(const std::function<void(ValueBuilder&)>& tell) {
  RunBuilder run;
  run.Step(4);
  tell(run.Value(1));
  run.Pass(2).Root(1);
  return Diagnose({run.Build()}).incidents(0).pattern();
}

TEST(PatternOrder, CastIsToldWithTheValueBeforeIt) {
  const Pattern pattern = PatternOf([](ValueBuilder& value) {
    value.Produce("aten::_to_copy")
        .Input(Range(Tensor({4, 8}), -3, 72000))
        .Output(PosInf(Half(Tensor({4, 8}))));
  });
  EXPECT_EQ(pattern.id(), "cast-overflow");
  EXPECT_EQ(pattern.evidence(), "72000 against float16's 65504; 1 of 32 values");
}

TEST(PatternOrder, CastWhoseInputNobodySaw) {
  const Pattern pattern = PatternOf([](ValueBuilder& value) {
    value.Produce("aten::_to_copy")
        .Output(PosInf(Of(wire::ElementType::kBFloat16, Tensor({4, 8}))));
  });
  EXPECT_EQ(pattern.evidence(), "1 of 32 values beyond bfloat16's 3.39e+38, first at [0, 0]");
}

TEST(PatternOrder, TwoMasksOfTheLowestNumberAreNoBlowUp) {
  const auto of_finite = [](double min) {
    return PatternOf([min](ValueBuilder& value) {
             value.Produce("aten::add").Output(Range(NegInf(Tensor({4, 8})), min, 0));
           })
        .id();
  };
  EXPECT_EQ(of_finite(-3.4e38), "masks-added");
  EXPECT_EQ(of_finite(-1e37), "blow-up");
}

TEST(PatternOrder, DivisionInHalfPrecisionAndInSingle) {
  const auto of = [](const RecordTensor& output) {
    return PatternOf([&](ValueBuilder& value) { value.Produce("aten::div").Output(output); }).id();
  };
  EXPECT_EQ(of(PosInf(Half(Tensor({4, 8})))), "division-by-zero-in-half-precision");
  EXPECT_EQ(of(PosInf(Tensor({4, 8}))), "division-by-zero");
}

TEST(PatternOrder, DivisorOfHalfPrecisionThatIsFarFromZeroMadeAnOverflow) {
  EXPECT_EQ(PatternOf([](ValueBuilder& value) {
              value.Produce("aten::div")
                  .Input(Half(Tensor({4, 8})))
                  .Input(Range(Half(Tensor({4, 8})), 1e-6, 1))
                  .Output(PosInf(Half(Tensor({4, 8}))));
            }).id(),
            "half-precision-overflow");
}

TEST(PatternOrder, ZeroOverZeroInASingleNumberIsACount) {
  const auto of_numel = [](int64_t numel) {
    return PatternOf([=](ValueBuilder& value) { value.Produce("aten::div").Nan(1, numel); }).id();
  };
  EXPECT_EQ(of_numel(1), "zero-over-zero-count");
  EXPECT_EQ(of_numel(8), "division-by-zero");
}

TEST(PatternOrder, GradientInHalfPrecision) {
  EXPECT_EQ(
      PatternOf([](ValueBuilder& value) {
        value.Produce("aten::mm").Backward("AddmmBackward0").Output(PosInf(Half(Tensor({4}))));
      }).id(),
      "gradient-overflow-in-half-precision");
}

TEST(PatternOrder, FunctionWrittenInPythonIsToldFromThoseOfTorch) {
  const auto in_node = [](const char* node) {
    return PatternOf(
               [node](ValueBuilder& value) { value.Produce("aten::div").Backward(node).Nan(); })
        .id();
  };
  EXPECT_EQ(in_node("LengthBackward"), "custom-function-backward");
  EXPECT_EQ(in_node("DivBackward0"), "division-by-zero-in-backward");
  EXPECT_EQ(in_node("CompiledFunctionBackward"), "division-by-zero-in-backward");
}

TEST(PatternOrder, ScoreOfPlusInfinityIsNoMaskedRow) {
  EXPECT_EQ(PatternOf([](ValueBuilder& value) {
              value.InfToNan("aten::_softmax").Input(PosInf(NegInf(Tensor({4, 8})))).Nan();
            }).id(),
            "softmax-of-plus-infinity");
}

TEST(PatternOrder, NumberThatOnlyAMisspeltConstantExplains) {
  const auto of = [](const char* op) {
    return PatternOf([op](ValueBuilder& value) { value.Produce(op).Nan(8, 8); }).id();
  };
  EXPECT_EQ(of("aten::mul"), "number-is-nan");
  // The sum inside a matrix product can overflow both ways.
  EXPECT_EQ(of("aten::addmm"), "blow-up");
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
  EXPECT_EQ(of("aten::_fused_adamw_", true), "adam-zero-over-zero");
  EXPECT_EQ(of("aten::add_", true), "update-overflow");
}

}  // namespace
}  // namespace nanwatch
