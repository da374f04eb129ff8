// SPDX-License-Identifier: Apache-2.0
// Values that were bad when the job ended with an error.
#include <gtest/gtest.h>

#include <csignal>

#include "daemon/correlate/correlate.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

// An activation that is NaN, and that nothing is made of.
RunBuilder WithBadActivation() {
  RunBuilder run;
  run.Value(1).Produce("aten::div").At("probabilities").Step(2).NeedsGradient().Nan();
  return run;
}

TEST(Death, BadValueBeforeTheErrorThatEndedTheJobIsAnAnomaly) {
  const Verdict verdict = Correlate({WithBadActivation().ExitCode(1).Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.incidents(0).severity(), "error");
  EXPECT_TRUE(verdict.incidents(0).ended_job());
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::div");
}

// It may have been made finite by what nobody asked about.
TEST(Death, AtSampledAnErrorThatSpeaksOfSomethingElseLeavesItUnknown) {
  const auto died = [](bool exact, uint32_t level) {
    RunBuilder run;
    constexpr uint32_t kSeen = wire::ValueRecord::kNeedsGradient;
    const uint32_t flag = exact ? kSeen : uint32_t{wire::ValueRecord::kInexact};
    run.Value(1).Produce("aten::div").At("probabilities").Step(2).NeedsGradient().Nan().Flag(flag);
    RunFacts facts = run.ExitCode(1).Build();
    facts.mutable_run()->set_level(level);
    return Correlate({facts});
  };
  constexpr auto kSampled = static_cast<uint32_t>(wire::Level::kSampled);
  constexpr auto kFull = static_cast<uint32_t>(wire::Level::kFull);
  EXPECT_EQ(died(false, kSampled).unknown_because(), "died_in_bad_step");
  EXPECT_EQ(died(true, kSampled).verdict(), "anomaly");
  EXPECT_EQ(died(false, kFull).verdict(), "anomaly");
}

RunBuilder WithoutSteps() {
  RunBuilder run;
  run.Clock(Clocks());
  run.Ended(Clocks());
  return run;
}

// Of several processes nobody knows which one an exit status is about.
TEST(Death, ExceptionThatEndedOneOfSeveralProcessesIsItsOwn) {
  const auto rank = [](int number, bool failed) {
    RunBuilder run = WithBadActivation();
    run.Rank(number);
    run.End(9, failed);
    return run.Build();
  };
  const Verdict verdict = Correlate({rank(0, false), rank(1, true)});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  ASSERT_GE(verdict.incidents_size(), 1);
  EXPECT_TRUE(verdict.incidents(0).ended_job());
  EXPECT_EQ(verdict.incidents(0).origin().rank(), 1);
  EXPECT_EQ(Correlate({rank(0, false), rank(1, false)}).verdict(), "expected");
}

// A distribution refuses its arguments.
TEST(Death, WhatAScriptWithoutStepsCheckedLastIsAnAnomaly) {
  RunBuilder run = WithoutSteps();
  run.Value(1).Produce("aten::log").Nan();
  run.Kill(2, "aten::eq", 1);
  EXPECT_EQ(Correlate({run.ExitCode(1).Build()}).verdict(), "anomaly");
  EXPECT_EQ(Correlate({run.ExitCode(0).Build()}).verdict(), "expected");
}

// A policy is sampled without gradients.
TEST(Death, WhatATrainingMetLastIsAnAnomalyWhereItsErrorSpeaksOfIt) {
  const auto training = [](bool checks, bool error_speaks_of_it) {
    RunBuilder run;
    run.Value(1).Produce("aten::div").At("observation").Step(2).Nan();
    if (checks) run.Kill(2, "aten::eq", 1);
    run.End(9, true, error_speaks_of_it);
    return Correlate({run.ExitCode(1).Build()});
  };
  const Verdict refused = training(true, true);
  ASSERT_EQ(refused.verdict(), "anomaly") << "a distribution's check";
  EXPECT_TRUE(refused.incidents(0).ended_job());
  EXPECT_EQ(training(false, true).verdict(), "anomaly") << "torch.multinomial";
  EXPECT_EQ(training(true, false).verdict(), "expected") << "another error";
  EXPECT_EQ(training(false, false).verdict(), "expected") << "another error";
}

TEST(Death, ErrorMattersMoreThanANumberThatWasLookedAt) {
  RunBuilder run;
  run.Value(1).Produce("aten::div").Step(2).Nan();
  run.Read(2, 1);
  run.Kill(3, "aten::eq", 1);
  run.End(9, true, true);
  const Verdict verdict = Correlate({run.ExitCode(1).Build()});
  ASSERT_EQ(verdict.verdict(), "anomaly");
  EXPECT_EQ(verdict.incidents(0).severity(), "error");
  EXPECT_TRUE(verdict.incidents(0).ended_job());
}

TEST(Death, WhatTheProgramMadeFiniteIsNotWhatItsErrorSpeaksOf) {
  RunBuilder run;
  run.Value(1).Produce("aten::div").Step(2).Nan();
  run.Kill(2, "aten::nan_to_num", 1);
  run.End(9, true, true);
  EXPECT_EQ(Correlate({run.ExitCode(1).Build()}).verdict(), "expected");
}

// assert not math.isnan(result.item())
TEST(Death, WhatAScriptWithoutStepsReadLastIsAnAnomaly) {
  RunBuilder run = WithoutSteps();
  run.Value(1).Produce("aten::log").Nan();
  run.Read(2, 1);
  const Verdict verdict = Correlate({run.ExitCode(1).Build()});
  ASSERT_EQ(verdict.verdict(), "anomaly");
  EXPECT_TRUE(verdict.incidents(0).ended_job());
  RunBuilder missing = WithoutSteps();
  missing.Value(1).External("aten::mean").Nan();
  missing.Read(2, 1);
  EXPECT_EQ(Correlate({missing.ExitCode(1).Build()}).verdict(), "expected") << "a missing value";
  RunBuilder went_on = WithoutSteps();
  went_on.Value(1).Produce("aten::log").Nan();
  went_on.Read(2, 1);
  went_on.Value(3).Scalar("aten::masked_fill").NegInf();
  EXPECT_EQ(Correlate({went_on.ExitCode(1).Build()}).verdict(), "expected");
}

TEST(Death, WhatAScriptWithoutStepsCheckedAndThenLeftBehindHarmedNothing) {
  RunBuilder another = WithoutSteps();
  another.Value(1).Produce("aten::log").Nan();
  another.Kill(2, "aten::eq", 1);
  another.Value(3).Scalar("aten::masked_fill").NegInf();
  EXPECT_EQ(Correlate({another.ExitCode(1).Build()}).verdict(), "expected");
  RunBuilder repaired = WithoutSteps();
  repaired.Value(1).Produce("aten::log").Nan();
  repaired.Kill(2, "aten::isnan", 1);
  repaired.Kill(3, "aten::where", 1);
  EXPECT_EQ(Correlate({repaired.ExitCode(1).Build()}).verdict(), "expected");
}

TEST(Death, WithoutAnErrorItHarmsNothing) {
  EXPECT_EQ(Correlate({WithBadActivation().ExitCode(0).Build()}).verdict(), "expected");
  EXPECT_EQ(Correlate({WithBadActivation().Build()}).verdict(), "expected");
}

RunFacts KilledBy(RunBuilder run, int signal) {
  RunFacts facts = run.Build();
  facts.mutable_state()->set_signal(signal);
  return facts;
}

TEST(Death, OfAJobThatWasKilledInTheStepNobodyKnowsWhatWouldHaveBecomeOfTheValue) {
  for (const int signal : {SIGTERM, SIGKILL, SIGSEGV}) {
    const Verdict verdict = Correlate({KilledBy(WithBadActivation(), signal)});
    EXPECT_EQ(verdict.verdict(), "unknown");
    EXPECT_EQ(verdict.unknown_because(), "killed_in_bad_step");
    EXPECT_EQ(verdict.incidents(0).severity(), "info");
  }
  for (const int status : {128 + SIGTERM, 128 + SIGKILL}) {
    EXPECT_EQ(Correlate({WithBadActivation().ExitCode(status).Build()}).verdict(), "unknown");
  }
}

TEST(Death, KilledByTheUserOrInALaterStepItHarmsNothing) {
  EXPECT_EQ(Correlate({KilledBy(WithBadActivation(), SIGINT)}).verdict(), "expected");
  RunBuilder later = WithBadActivation();
  EXPECT_EQ(Correlate({KilledBy(later.Ended(OptimizerClocks({5})), SIGTERM)}).verdict(),
            "expected");
  RunBuilder repaired = WithBadActivation();
  repaired.Kill(2, "aten::where", 1);
  EXPECT_EQ(Correlate({KilledBy(repaired, SIGTERM)}).verdict(), "expected");
  RunBuilder healthy;
  EXPECT_EQ(Correlate({KilledBy(healthy, SIGTERM)}).verdict(), "clean");
}

TEST(Death, KilledWhenAPassHadBegunAtABadLossIsAnAnomaly) {
  RunBuilder run = WithBadActivation();
  run.Pass(2).Root(1);
  EXPECT_EQ(Correlate({KilledBy(run, SIGKILL)}).verdict(), "anomaly");
}

TEST(Death, OfAnEarlierStepItHarmedNothing) {
  RunBuilder run = WithBadActivation();
  EXPECT_EQ(Correlate({run.Ended(OptimizerClocks({5})).ExitCode(1).Build()}).verdict(), "expected");
}

TEST(Death, WhatWasMadeFiniteAgainHarmedNothing) {
  RunBuilder run = WithBadActivation();
  run.Kill(2, "aten::where", 1);
  EXPECT_EQ(Correlate({run.ExitCode(1).Build()}).verdict(), "expected");
}

TEST(Death, CheckThatAsksForNanMakesNothingFinite) {
  RunBuilder run = WithBadActivation();
  run.Kill(2, "aten::eq", 1);
  EXPECT_EQ(Correlate({run.ExitCode(1).Build()}).verdict(), "anomaly");
}

TEST(Death, TheLastOfAChainCountsForItsOrigin) {
  RunBuilder run = WithBadActivation();
  run.Value(2).Propagate("aten::mul").From(1).NeedsGradient().Nan();
  const Verdict verdict = Correlate({run.ExitCode(1).Build()});
  EXPECT_EQ(verdict.verdict(), "anomaly");
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::div");
}

TEST(Death, MasksAndWhatNeedsNoGradientArePassedOver) {
  RunBuilder mask;
  mask.Value(1).Scalar("aten::masked_fill").NeedsGradient().NegInf();
  EXPECT_EQ(Correlate({mask.ExitCode(1).Build()}).verdict(), "expected");
  RunBuilder metric;
  metric.Value(1).Produce("aten::div").Nan();
  EXPECT_EQ(Correlate({metric.ExitCode(1).Build()}).verdict(), "expected");
}

}  // namespace
}  // namespace nanwatch
