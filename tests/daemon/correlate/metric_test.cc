// SPDX-License-Identifier: Apache-2.0
// NaN that the program reads as a number while autograd is off: validation losses and metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "daemon/correlate/correlate.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using ::testing::ElementsAre;

TEST(Metric, NanThatIsReadWithoutGradientsIsAWarning) {
  RunBuilder run;
  run.Step(7);
  run.Value(1).Produce("aten::log").At("head").WithoutGradients().Nan();
  run.Value(2).Propagate("aten::mean").From(1).WithoutGradients().Nan();
  run.Read(3, 2);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  ASSERT_EQ(verdict.incidents_size(), 1);
  const Incident& incident = verdict.incidents(0);
  EXPECT_EQ(incident.severity(), "warning");
  EXPECT_EQ(incident.origin().op(), "aten::log");
  EXPECT_EQ(incident.origin().step(), 7);
  EXPECT_THAT(incident.reach(), ElementsAre("activation", "metric"));
  ASSERT_EQ(incident.chain_size(), 2);
  EXPECT_EQ(incident.chain(1).reach(), "metric");
}

// As a gradient's norm, which clip_grad_norm_ computes with autograd off.
TEST(Metric, NanThatWasBadBeforeAutogradWasOffIsNone) {
  RunBuilder run;
  run.Value(1).Produce("aten::div_").Nan();
  run.Value(2).Propagate("aten::linalg_vector_norm").From(1).WithoutGradients().Nan();
  run.Read(3, 2);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "expected");
}

// Averaged weights, made with autograd on, are copied into a model for its validation.
TEST(Metric, NanInWeightsThatAreCopiedIntoAModelBeforeItIsCalled) {
  RunBuilder run;
  run.Value(1).Produce("aten::div").Nan();
  run.Value(2).Propagate("aten::copy_").From(1).WithoutGradients().Nan();
  run.Value(3).Propagate("aten::addmm").At("head", "Linear").From(2).WithoutGradients().Nan();
  run.Value(4).Propagate("aten::mean").From(3).WithoutGradients().Nan();
  run.Read(5, 4);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::div");
}

// The batch was made before autograd was switched off.
TEST(Metric, NanInABatchThatAModuleIsCalledWithAfterwards) {
  const auto verdict_of = [](const char* layer_type, bool of_backward) {
    RunBuilder run;
    auto& batch = run.Value(1).Produce("aten::div").Nan();
    if (of_backward) batch.Backward("DivBackward0");
    run.Value(2).Propagate("aten::addmm").At("", layer_type).From(1).WithoutGradients().Nan();
    run.Value(3).Propagate("aten::mean").From(2).WithoutGradients().Nan();
    run.Read(4, 3);
    return Correlate({run.Build()}).verdict();
  };
  EXPECT_EQ(verdict_of("Linear", false), "anomaly");
  EXPECT_EQ(verdict_of("", false), "expected") << "no module was called with it";
  RunBuilder marked;
  marked.Value(1).Scalar("aten::full").Nan();
  marked.Value(2).Propagate("aten::mean").At("", "Mean").From(1).WithoutGradients().Nan();
  marked.Read(3, 2);
  EXPECT_EQ(Correlate({marked.Build()}).verdict(), "expected") << "what is missing is marked";
  EXPECT_EQ(verdict_of("Linear", true), "expected") << "a gradient is no batch";
}

TEST(Metric, NanInTheValidationBatch) {
  RunBuilder run;
  run.Value(1).External("aten::addmm").At("fc").WithoutGradients().Nan();
  run.Value(2).Propagate("aten::mean").From(1).WithoutGradients().Nan();
  run.Read(3, 2);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.incidents(0).origin().class_(), "external");
}

TEST(Metric, InfinityIsAStartValue) {
  RunBuilder run;
  run.Value(1).Produce("aten::div").WithoutGradients().Nan();
  run.Read(2, 1, std::numeric_limits<double>::infinity());
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "expected");
}

TEST(Metric, WhatIsMadeOfAStepWithGradientsIsItsLossOrNothing) {
  RunBuilder run;
  run.Value(1).Produce("aten::div").NeedsGradient().Nan();
  run.Value(2).Propagate("aten::mean").From(1).WithoutGradients().Nan();
  run.Read(3, 2);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "expected");
}

// As torchmetrics sums up: the losses were made in validation, their sum is divided afterwards.
TEST(Metric, WhatIsSummedUpAfterwardsIsOneToo) {
  RunBuilder run;
  run.Value(1).Produce("aten::mse_loss").WithoutGradients().Nan();
  run.Value(2).Propagate("aten::add_").From(1).WithoutGradients().Nan();
  run.Value(3).Propagate("aten::div").From(2).Nan();
  run.Read(4, 3);
  const Verdict verdict = Correlate({run.Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.incidents(0).severity(), "warning");
}

TEST(Metric, WhatWasMadeWithGradientsOnAloneIsNot) {
  RunBuilder run;
  run.Value(1).Produce("aten::log").Nan();
  run.Read(2, 1);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "expected");
}

TEST(Metric, ResultOfAProgramThatTrainedNothing) {
  const auto verdict_of = [](bool ended, uint32_t passes, bool made, int exit_code = 0) {
    RunBuilder run;
    if (made) {
      run.Value(1).Produce("aten::div").Nan();
    } else {
      run.Value(1).External("aten::mean").Nan();
    }
    run.Read(2, 1);
    RunFacts facts = run.Build();
    facts.mutable_state()->set_ended(ended);
    facts.mutable_state()->set_exit_code(exit_code);
    facts.mutable_state()->mutable_clocks()->Clear();
    facts.mutable_state()->mutable_clocks()->set_passes(passes);
    return Correlate({facts});
  };
  const Verdict verdict = verdict_of(true, 0, true);
  ASSERT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.incidents(0).severity(), "warning");
  EXPECT_EQ(verdict_of(false, 0, true).verdict(), "expected") << "it may train yet";
  EXPECT_EQ(verdict_of(true, 3, true).verdict(), "expected") << "it has trained";
  EXPECT_EQ(verdict_of(true, 0, false).verdict(), "expected") << "it may look for missing values";
  EXPECT_EQ(verdict_of(true, 0, true, 1).verdict(), "expected") << "it came to no result";
}

// The largest of some NaN has a place, too, and an accuracy is counted from places.
TEST(Metric, WeightOfAProgramThatOnlyRunsAModelMattersThoughNoNumberOfItIsRead) {
  const auto verdict_of = [](uint8_t kinds, bool trains) {
    RunBuilder run;
    run.Clock(Clocks());
    auto& used = run.Value(1).Propagate("aten::addmm").At("head").WithoutGradients();
    used.FromOutside(wire::Target::kParameter, "head.weight", kinds);
    kinds == wire::kHasNan ? used.Nan() : used.NegInf();
    run.Ended(trains ? OptimizerClocks({9}) : Clocks()).ExitCode(0);
    RunFacts facts = run.Build();
    facts.mutable_state()->set_ended(true);
    return Correlate({facts});
  };
  const Verdict verdict = verdict_of(wire::kHasNan, false);
  EXPECT_EQ(verdict.verdict(), "anomaly");
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().param(), "head.weight");
  EXPECT_THAT(verdict.incidents(0).reach(), ElementsAre("activation", "parameter"));
  EXPECT_EQ(verdict_of(wire::kHasNegInf, false).verdict(), "expected") << "a mask";
  EXPECT_EQ(verdict_of(wire::kHasNan, true).verdict(), "expected") << "training would show it";
}

TEST(Metric, NanThatTheProgramPutAmongManyNumbersMarksWhatIsMissing) {
  for (const bool of_many : {false, true}) {
    RunBuilder run;
    run.Value(1).Scalar("aten::full").WithoutGradients().Nan(3, 8);
    if (of_many) {
      run.ReadMany(2, 1);
    } else {
      run.Read(2, 1);
    }
    EXPECT_EQ(Correlate({run.Build()}).verdict(), of_many ? "expected" : "anomaly");
  }
}

TEST(Metric, ManyNumbersReadTogetherAreAMetricAndNoLoss) {
  RunBuilder run;
  run.Value(1).Produce("aten::div").WithoutGradients().Nan(1, 8);
  run.ReadMany(2, 1);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "anomaly");
}

TEST(Metric, NormOfGradientsIsNoMetric) {
  RunBuilder run;
  run.Value(1).Produce("aten::div").Backward("SqrtBackward0").Nan();
  run.Value(2).Propagate("aten::linalg_vector_norm").From(1).WithoutGradients().Nan();
  run.Read(3, 2);
  EXPECT_EQ(Correlate({run.Build()}).verdict(), "expected");
}

TEST(Metric, ComesAfterWhatHarmedTheTraining) {
  RunBuilder run;
  run.Value(1).Produce("aten::div").At("metric").WithoutGradients().Nan();
  run.Read(2, 1);
  run.Value(3).Produce("aten::log").At("head").NeedsGradient().Nan();
  run.Pass(4).Root(3);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 2);
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::log");
  EXPECT_EQ(verdict.incidents(0).severity(), "error");
  EXPECT_EQ(verdict.incidents(1).severity(), "warning");
}

TEST(Metric, OfTheSameOriginAsTheLossAddsToItsReach) {
  RunBuilder run;
  run.Value(1).Produce("aten::log").At("head").WithoutGradients().Nan();
  run.Read(2, 1);
  run.Value(3).Propagate("aten::mean").From(1).NeedsGradient().Nan();
  run.Pass(4).Root(3);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).severity(), "error");
  EXPECT_THAT(verdict.incidents(0).reach(), ElementsAre("activation", "loss", "metric"));
}

}  // namespace
}  // namespace nanwatch
