// SPDX-License-Identifier: Apache-2.0
#include "daemon/explain/growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>

#include "daemon/explain/pattern_book.h"

namespace nanwatch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The newest last; that is of the origin's step where `now`.
void AddOp(const char* op, std::initializer_list<double> levels, bool now, Incident& incident) {
  auto steps_before = static_cast<uint32_t>(levels.size()) - (now ? 1 : 0);
  for (const double level : levels) {
    TrailOp& told = *incident.add_trail();
    told.set_op(op);
    told.set_layer("blocks.3");
    told.set_phase("forward");
    told.set_largest(level);
    told.set_steps_before(steps_before--);
  }
}

Incident Overflow(const char* op) {
  Incident incident;
  Finding& origin = *incident.mutable_origin();
  origin.set_kind("op");
  origin.set_class_("produce");
  origin.set_exact(true);
  origin.set_op(op);
  origin.set_phase("forward");
  origin.set_step(40);
  TensorStats& output = *origin.add_outputs();
  output.set_dtype("float32");
  output.set_numel(8);
  output.set_nan(8);
  if (std::string_view(op) == "aten::exp") {
    output.set_nan(0);
    output.set_pos_inf(8);
  }
  return incident;
}

TEST(Growth, ResultsThatGrowFromStepToStepAreFound) {
  Incident incident;
  AddOp("aten::addmm", {3.8, 1357, 1873, 2.6e24}, true, incident);
  AddOp("aten::relu", {0.7, 0.8, 0.9, 1.1}, true, incident);
  const std::optional<Growth> growth = FindGrowth(incident);
  ASSERT_TRUE(growth);
  EXPECT_EQ(growth->op, "aten::addmm");
  EXPECT_EQ(growth->layer, "blocks.3");
  EXPECT_EQ(growth->usual, 3.8);
  EXPECT_THAT(growth->levels, ElementsAre(1357, 1873, 2.6e24));
  EXPECT_TRUE(growth->in_last_step);
}

TEST(Growth, NoGrowthIsFoundInWhatGoesUpAndDown) {
  Incident incident;
  AddOp("aten::addmm", {3, 400, 2, 300, 4}, true, incident);
  AddOp("aten::mul", {0.001, 0.02, 0.5, 0.8}, true, incident);
  AddOp("aten::exp", {1, 2e5, 3e20}, false, incident);
  AddOp("aten::relu", {5000}, true, incident);
  AddOp("aten::sub", {500, 600, 900, 1200}, true, incident);
  EXPECT_FALSE(FindGrowth(incident));
}

TEST(Growth, AnOverflowAfterGrowthIsADivergingTraining) {
  for (const char* op : {"aten::native_layer_norm", "aten::exp", "aten::native_batch_norm"}) {
    Incident incident = Overflow(op);
    AddOp("aten::addmm", {3.8, 1357, 1873, 2.6e24}, true, incident);
    const std::optional<Pattern> pattern = PatternBook::BuiltIn().Find(incident);
    ASSERT_TRUE(pattern) << op;
    EXPECT_EQ(pattern->id(), "activations-diverged") << op;
    EXPECT_THAT(pattern->fix(), HasSubstr("learning rate")) << op;
    EXPECT_EQ(pattern->evidence(),
              "largest result of aten::addmm in blocks.3: 3.8, then 1357, 1873, 2.6e+24");
  }
}

TEST(Growth, AGradientNormOrALossThatGrewBeforeIsADivergingTrainingToo) {
  for (const char* op : {"aten::addmm", "aten::native_layer_norm", "aten::exp"}) {
    Incident incident = Overflow(op);
    AddOp("aten::addmm", {2.8, 2.9, 3.1, 2.6e24}, true, incident);
    for (const double norm : {0.5, 0.7, 0.6, 900.0, 2e20}) incident.add_gradient_norms_before(norm);
    const std::optional<Pattern> pattern = PatternBook::BuiltIn().Find(incident);
    ASSERT_TRUE(pattern) << op;
    EXPECT_THAT(pattern->id(), testing::EndsWith("-diverged")) << op;
    EXPECT_EQ(pattern->evidence(), "gradient norm: 0.5, then 900, 2e+20");
    *incident.mutable_losses_before() = incident.gradient_norms_before();
    incident.clear_gradient_norms_before();
    EXPECT_EQ(PatternBook::BuiltIn().Find(incident)->evidence(), "loss: 0.5, then 900, 2e+20");
  }
}

TEST(Growth, AGradientNormThatStaysIsNoDivergingTraining) {
  Incident incident = Overflow("aten::addmm");
  for (const double norm : {0.5, 0.7, 0.6, 9.0, 2.0}) incident.add_gradient_norms_before(norm);
  EXPECT_FALSE(PatternBook::BuiltIn().Find(incident)) << "NaN alone need not be an overflow";
  incident.mutable_origin()->mutable_outputs(0)->set_pos_inf(1);
  EXPECT_EQ(PatternBook::BuiltIn().Find(incident)->id(), "blow-up");
}

// An update before or this batch: both are possible, and both are named.
TEST(Growth, AnOverflowOfOneStepIsNot) {
  Incident incident = Overflow("aten::native_layer_norm");
  AddOp("aten::addmm", {2.8, 2.9, 3.1, 2.6e24}, true, incident);
  const std::optional<Pattern> pattern = PatternBook::BuiltIn().Find(incident);
  ASSERT_TRUE(pattern);
  EXPECT_EQ(pattern->id(), "layer-norm-overflow");
  EXPECT_THAT(pattern->evidence(), HasSubstr("about 2.8 in the steps before, now 2.6e+24"));
  EXPECT_THAT(pattern->fix(), HasSubstr("learning rate"));
  EXPECT_THAT(pattern->fix(), HasSubstr("raw data"));
}

}  // namespace
}  // namespace nanwatch
