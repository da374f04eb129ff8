// SPDX-License-Identifier: Apache-2.0
#include "daemon/explain/incident_facts.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

TensorStats& WithNan(TensorStats& tensor, uint64_t bad, int64_t numel) {
  tensor.set_nan(bad);
  tensor.set_numel(numel);
  return tensor;
}

TEST(IncidentFacts, UnknownNamesAreNotFilledIn) {
  Incident incident;
  incident.mutable_origin()->set_op("aten::sqrt_");
  EXPECT_EQ(FillIn("{op} is {op_name}", incident), "aten::sqrt_ is sqrt");
  EXPECT_EQ(FillIn("{input.numel} of {op}", incident), std::nullopt);
  EXPECT_EQ(FillIn("{nonsense}", incident), std::nullopt);
  EXPECT_EQ(FillIn("open { brace", incident), "open { brace");
}

TEST(IncidentFacts, NamesOfNumbers) {
  for (const char* name : {"step", "skipped", "absmax", "input.nan", "input12.may_be_zero",
                           "output4.share_of_limit", "used.numel"})
    EXPECT_TRUE(IsNumberName(name)) << name;
  for (const char* name : {"", "stepp", "nan", "inputfoo.nan", "input1x.nan", "input.", "input.nam",
                           "tensor.nan", "output.dtype", "used1.nan"})
    EXPECT_FALSE(IsNumberName(name)) << name;
  Incident incident;
  WithNan(*incident.mutable_origin()->add_inputs(), 1, 4);
  EXPECT_EQ(NumberOf(incident, "input0.nan"), 1);
  EXPECT_EQ(NumberOf(incident, "inputfoo.nan"), std::nullopt);
}

TEST(IncidentFacts, RangeOfATensorWithoutFiniteValuesIsUnknown) {
  Incident incident;
  TensorStats& output = WithNan(*incident.mutable_origin()->add_outputs(), 4, 4);
  EXPECT_EQ(NumberOf(incident, "output.finite_max"), std::nullopt);
  EXPECT_EQ(NumberOf(incident, "output.good"), 0);
  output.set_nan(3);
  output.set_finite_max(2.5);
  EXPECT_EQ(NumberOf(incident, "output.finite_max"), 2.5);
  EXPECT_EQ(NumberOf(incident, "output.good"), 1);
}

TEST(IncidentFacts, LimitIsThatOfTheElementType) {
  Incident incident;
  TensorStats& output = WithNan(*incident.mutable_origin()->add_outputs(), 0, 4);
  for (const auto& [dtype, limit] : {std::pair{"float16", "65,504"},
                                     {"bfloat16", "3.39e+38"},
                                     {"float32", "3.403e+38"},
                                     {"float8_e4m3fn", "448"}}) {
    output.set_dtype(dtype);
    EXPECT_EQ(TextOf(incident, "output.limit"), limit) << dtype;
  }
  output.set_finite_min(-112);
  EXPECT_EQ(NumberOf(incident, "output.share_of_limit"), 0.25);
  output.set_dtype("int64");
  EXPECT_EQ(NumberOf(incident, "output.limit"), std::nullopt);
  EXPECT_EQ(NumberOf(incident, "output.share_of_limit"), std::nullopt);
}

TEST(IncidentFacts, LargeNumbersLoseTheirFraction) {
  Incident incident;
  TensorStats& output = WithNan(*incident.mutable_origin()->add_outputs(), 0, 4);
  for (const auto& [number, text] : {std::pair{72000.0, "72,000"},
                                     {110865.25, "110,865"},
                                     {-1234, "-1,234"},
                                     {999, "999"},
                                     {120.5, "120.5"},
                                     {0.0001234, "0.0001234"},
                                     {3e37, "3e+37"}}) {
    output.set_finite_max(number);
    EXPECT_EQ(TextOf(incident, "output.finite_max"), text);
  }
}

// The batch entered by an op that only moved it, in another shape; what computed with it first
// stands later in the chain.
TEST(IncidentFacts, UsedIsTheBadArgumentOfTheFirstOpThatComputedWithIt) {
  Incident incident;
  Finding& origin = *incident.mutable_origin();
  origin.set_kind("input_data");
  origin.set_op("aten::mse_loss");
  origin.set_ticket(1);
  WithNan(*origin.add_outputs(), 1, 4);
  *incident.add_chain() = origin;
  EXPECT_EQ(NumberOf(incident, "used.numel"), std::nullopt);
  EXPECT_EQ(NumberOf(incident, "used.nan"), 1) << "kinds are kept";
  EXPECT_EQ(NumberOf(incident, "used.inf"), 0);
  Finding& link = *incident.add_chain();
  link.set_op("aten::mse_loss");
  link.set_ticket(3);
  WithNan(*link.add_inputs(), 0, 18).set_role("self");
  WithNan(*link.add_inputs(), 2, 18).set_role("target");
  EXPECT_EQ(FillIn("{used.bad} of {used.numel} of the {used.role}", incident),
            "2 of 18 of the target");
  // Of what an op made itself, nothing came in.
  incident.mutable_origin()->set_kind("op");
  EXPECT_EQ(NumberOf(incident, "used.numel"), std::nullopt);
}

TEST(IncidentFacts, SkippedUpdatesAreThoseThatTheStepDoesNotCount) {
  Incident incident;
  incident.mutable_origin()->set_step(3);
  incident.mutable_origin()->set_iteration(13);
  EXPECT_EQ(NumberOf(incident, "skipped"), 10);
  incident.mutable_origin()->set_step(-1);
  EXPECT_EQ(NumberOf(incident, "skipped"), std::nullopt);
}

}  // namespace
}  // namespace nanwatch
