// SPDX-License-Identifier: Apache-2.0
#include "daemon/explain/training_warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "daemon/explain/explain.h"
#include "daemon/explain/warnings_text.h"
#include "tests/daemon/correlate/run_builder.h"
#include "tests/daemon/watch/told_training.h"

namespace nanwatch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Ordinary for 100 steps, then ten times as much each step.
ToldTraining Exploding(int growing_steps) {
  ToldTraining training;
  training.Steps(100, [](int i) { return Seen{.norm = i % 2 == 0 ? 1.7 : 1.9, .loss = 1}; });
  training.Steps(growing_steps,
                 [](int i) { return Seen{.norm = 1.8 * std::pow(10.0, i + 1), .loss = 1}; });
  return training;
}

RunFacts FactsOf(const ToldTraining& training, uint64_t nonce = 1, int rank = 0) {
  RunFacts facts;
  facts.mutable_state()->set_tensors_checked(1);
  facts.mutable_run()->set_nonce(nonce);
  facts.mutable_run()->set_rank(rank);
  *facts.mutable_state()->mutable_clocks() = training.steps().back().clocks();
  *facts.mutable_training() = training.history();
  return facts;
}

TEST(TrainingWarnings, EveryIdThatIsRaisedHasItsTexts) {
  std::set<std::string> ids;
  for (const auto& entry : nlohmann::json::parse(kWarningsText)) {
    EXPECT_TRUE(ids.insert(entry.at("id")).second);
    for (const char* text : {"cause", "fix"}) {
      const nlohmann::json& told = entry.at(text);
      for (const auto& sentence : told.is_string() ? nlohmann::json::array({told}) : told) {
        EXPECT_FALSE(sentence.get<std::string>().empty()) << entry.at("id");
        EXPECT_LE(sentence.get<std::string>().size(), 170u) << entry.at("id");
      }
    }
    EXPECT_GE(entry.at("evidence").size(), 1u);
  }
  EXPECT_THAT(ids, testing::UnorderedElementsAre(
                       "training-diverging", "gradient-exploding", "loss-blowing-up",
                       "gradient-vanishing", "gradients-zero", "parameters-without-gradient",
                       "scaler-sinking", "epsilon-lost", "dead-units", "update-too-large",
                       "gradient-vanishing-layer", "activation-overflow-ahead"));
}

TEST(TrainingWarnings, EvidenceHasTheNumbers) {
  const std::vector<Warning> warnings = WarningsOf(FactsOf(Exploding(12)));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].id(), "gradient-exploding");
  EXPECT_EQ(warnings[0].step(), 104);
  EXPECT_THAT(warnings[0].evidence(),
              HasSubstr("gradient norm 1.8e+05 at step 104, median 1.9 over the 100 steps before"));
  EXPECT_THAT(warnings[0].evidence(), Not(HasSubstr("?")));
  EXPECT_FALSE(warnings[0].has_ended_step());
}

TEST(TrainingWarnings, ClippingIsNamedOnlyWhereTheNormIsHeld) {
  const auto cause_of = [](double noise) {
    ToldTraining training;
    training.Steps(200, [](int) { return Seen{.norm = 1, .loss = 2}; });
    training.Steps(30, [noise](int i) {
      return Seen{.norm = i % 2 == 0 ? 1 : noise, .loss = 2 * std::pow(1.5, i)};
    });
    const std::vector<Warning> warnings = WarningsOf(FactsOf(training));
    return warnings.empty() ? "" : warnings[0].cause();
  };
  EXPECT_THAT(cause_of(1), HasSubstr("stays at 1, as happens with clipping"));
  EXPECT_THAT(cause_of(1.5), testing::AllOf(HasSubstr("the loss grows"), Not(HasSubstr("clip"))));
}

// The losses of a GAN go up and down with each other.
TEST(TrainingWarnings, OneOfSeveralOptimizersIsNotSaidToHaveTooHighALearningRate) {
  ToldTraining training;
  training.Steps(200, [](int i) {
    return Seen{.norm = 1, .loss = 0.7, .optimizer = static_cast<uint32_t>(i % 2)};
  });
  training.Steps(40, [](int i) {
    const double grown = i % 2 == 0 ? 1 : std::pow(2.0, i);
    return Seen{.norm = grown, .loss = 0.7 * grown, .optimizer = static_cast<uint32_t>(i % 2)};
  });
  const std::vector<Warning> warnings = WarningsOf(FactsOf(training));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].id(), "training-diverging");
  EXPECT_THAT(warnings[0].cause(), HasSubstr("one of 2 optimizers"));
  EXPECT_THAT(warnings[0].cause(), Not(HasSubstr("learning rate")));
}

TEST(TrainingWarnings, OfSeveralSentencesThatOneIsTakenOfWhichAllIsKnown) {
  RunFacts facts;
  facts.mutable_state()->mutable_clocks()->add_optimizer_steps(9);
  facts.mutable_state()->mutable_clocks()->set_optimizer_ranges(9);
  TrainingAlarm& alarm = *facts.mutable_training()->add_alarms();
  alarm.mutable_clocks()->add_optimizer_steps(0);
  alarm.set_id("parameters-without-gradient");
  for (const char* name : {"gradients_missing", "parameters", "steps_missing"})
    (*alarm.mutable_numbers())[name] = 3;
  EXPECT_THAT(WarningsOf(facts)[0].evidence(), Not(HasSubstr("?")));
  EXPECT_THAT(WarningsOf(facts)[0].evidence(), Not(HasSubstr(": ")));
  alarm.set_param("head.weight");
  EXPECT_THAT(WarningsOf(facts)[0].evidence(), HasSubstr("step 0: head.weight"));
  EXPECT_EQ(WarningsOf(facts)[0].param(), "head.weight");
}

// A tool that looks before the daemon does, at the same segment.
TEST(TrainingWarnings, StepsThatOnlyTheSegmentHasAreSeenToo) {
  const ToldTraining training = Exploding(12);
  RunFacts facts = FactsOf(training);
  facts.clear_training();
  for (size_t i = 0; i < training.steps().size(); ++i) {
    if (i < 60) Watch(training.steps()[i], *facts.mutable_training());
    if (i >= 40) *facts.add_steps_read() = training.steps()[i];
  }
  EXPECT_EQ(WarningsOf(facts)[0].DebugString(), WarningsOf(FactsOf(training))[0].DebugString());
}

TEST(TrainingWarnings, RanksThatShareTheirGradientsShowOneWarning) {
  Verdict verdict;
  AddWarnings({FactsOf(Exploding(12), 7, 1), FactsOf(Exploding(12), 6, 0)}, verdict);
  ASSERT_EQ(verdict.warnings_size(), 1);
  EXPECT_EQ(verdict.warnings(0).rank(), 0);
  EXPECT_EQ(verdict.warnings(0).processes(), 2u);
}

TEST(TrainingWarnings, AWarningMakesNoAnomaly) {
  const Verdict verdict = Diagnose({FactsOf(Exploding(12))});
  EXPECT_EQ(verdict.verdict(), "clean");
  EXPECT_EQ(verdict.warnings_size(), 1);
}

TEST(TrainingWarnings, SaysHowLongBeforeTheFirstAnomalyItCame) {
  RunBuilder run;
  run.Step(109);
  run.Value(1).Produce("aten::mul").At("valves.main").Step(109).Nan(4, 8);
  run.Pass(2).Root(1).Leaf("fc.weight", 1);
  run.Value(3).Produce("aten::log").Step(115).Nan(4, 8);
  RunFacts facts = run.Build();
  *facts.mutable_training() = Exploding(12).history();
  const Verdict verdict = Diagnose({facts});
  ASSERT_EQ(verdict.verdict(), "anomaly");
  ASSERT_EQ(verdict.warnings_size(), 1);
  EXPECT_EQ(verdict.warnings(0).steps_before(), 5);
}

TEST(TrainingWarnings, ARunWithoutStepsHasNone) { EXPECT_THAT(WarningsOf(RunFacts()), IsEmpty()); }

}  // namespace
}  // namespace nanwatch
