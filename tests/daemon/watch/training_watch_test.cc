// SPDX-License-Identifier: Apache-2.0
#include "daemon/watch/training_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/daemon/watch/told_training.h"

namespace nanwatch {
namespace {

using testing::ElementsAre;
using testing::Gt;
using testing::IsEmpty;
using testing::Lt;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
// Where float32 ends.
constexpr double kFloatMax = 3.4e38;

class TrainingWatch : public testing::Test {
 protected:
  // An ordinary run so far.
  void Ordinary(int steps) {
    training_.Steps(steps, [&](int) {
      return Seen{.norm = 1.8 * training_.Noise(0.1), .loss = 0.7 * training_.Noise(0.03)};
    });
  }
  [[nodiscard]] const TrainingAlarm& First() const { return training_.history().alarms(0); }
  [[nodiscard]] double Number(const std::string& name) const { return First().numbers().at(name); }

  ToldTraining training_;
};

TEST_F(TrainingWatch, KeepsTheNewestStepsWithFiniteNumbersAndSoundParameters) {
  training_.Steps(30, [](int i) { return Seen{.norm = i, .loss = i % 2 == 0 ? 1 : kNan}; });
  training_.Step({.norm = 5, .parameters_bad = true});
  training_.Step({.norm = kInf, .loss = kNan});
  const auto& recent = training_.history().recent();
  ASSERT_EQ(recent.size(), 16);
  EXPECT_EQ(recent[15].gradient_norm(), 29);
  EXPECT_EQ(recent[15].updates(), 30);
  EXPECT_FALSE(recent[15].has_loss());
  EXPECT_EQ(recent[14].loss(), 1);
}

TEST_F(TrainingWatch, AGradientThatGrowsTenfoldAStepIsToldWithinThree) {
  Ordinary(300);
  const int steps = training_.StepsUntilRaised(
      38, [&](int i) { return Seen{.norm = 1.8 * std::pow(10.0, i + 1), .loss = 0.7}; });
  EXPECT_THAT(training_.Ids(), ElementsAre("gradient-exploding"));
  EXPECT_LE(steps, 5);
  EXPECT_EQ(First().severity(), "warning");
  EXPECT_NEAR(Number("gradient_norm_median"), 1.8, 0.2);
  EXPECT_EQ(Number("gradient_norm_steps"), 100);
  EXPECT_GT(Number("gradient_norm_spreads"), 6);
}

// Growth by these factors a step, from an ordinary run and from the first step on: told at least so
// many steps before float32 ends, and never before a decade was crossed.
TEST_F(TrainingWatch, GrowthOfAnyRateIsToldLongBeforeTheEnd) {
  for (const double factor : {1.05, 1.1, 1.3, 2.0, 4.0, 10.0, 100.0, 1000.0}) {
    for (const int before : {0, 50, 300}) {
      ToldTraining training;
      training.Steps(before, [&](int) { return Seen{.norm = training.Noise(0.1)}; });
      const int steps_to_end = static_cast<int>(std::log(kFloatMax) / std::log(factor));
      const int told = training.StepsUntilRaised(
          steps_to_end, [&](int i) { return Seen{.norm = std::pow(factor, i)}; });
      EXPECT_LE(told + 3, steps_to_end) << factor << " after " << before;
      EXPECT_GT(std::pow(factor, told), 10) << factor << " after " << before;
    }
  }
}

// As a multilayer perceptron's norm went while its learning rate went up by 6 % a step.
TEST_F(TrainingWatch, GrowthThatGrowsItselfIsToldBeforeItsLastLeaps) {
  training_.Steps(110, [&](int) { return Seen{.norm = 2.4 * training_.Noise(0.2)}; });
  const double norms[] = {1.1, 1.5, 1.5, 2.8, 3.2, 26, 34,  4.5,   .23,   .55,
                          1.5, 2.1, 1.9, 1.6, 3.6, 3,  1.9, 2.2,   7.2,   14,
                          11,  13,  17,  24,  38,  78, 160, 6.7e3, 3.8e5, 7.8e19};
  const int steps = training_.StepsUntilRaised(30, [&](int i) { return Seen{.norm = norms[i]}; });
  EXPECT_THAT(training_.Ids(), ElementsAre("gradient-exploding"));
  EXPECT_LE(steps, 27) << "three before the last";
}

// Whatever the rate of growth and where it began: three steps before 65504 at the least, and not
// before an eighth of it.
TEST_F(TrainingWatch, ActivationsThatGrowAreToldBeforeTheyOverflow) {
  for (const double factor : {1.02, 1.1, 1.3, 2.0}) {
    for (const double first : {10.0, 2000.0, 7000.0}) {
      ToldTraining training;
      training.Steps(70, [&](int) { return Seen{.near = first * (1 + 0.1 * training.Uniform())}; });
      const int to_end = static_cast<int>(std::log(65504 / first) / std::log(factor));
      const int told = training.StepsUntilRaised(
          to_end, [&](int i) { return Seen{.near = first * std::pow(factor, i + 1)}; });
      if (factor == 2.0 && first == 7000.0) continue;  // it overflows in the fourth step
      EXPECT_THAT(training.Ids(), ElementsAre("activation-overflow-ahead"))
          << factor << " from " << first;
      EXPECT_LE(told + 2, to_end) << factor << " from " << first;
      EXPECT_GE(first * std::pow(factor, told), 65504 / 8.0) << factor << " from " << first;
    }
  }
  training_.Steps(20, [](int) { return Seen{.near = 100}; });
  training_.Steps(12, [](int i) { return Seen{.near = 200 * std::pow(2.0, i)}; });
  EXPECT_EQ(First().param(), "blocks.3 (aten::addmm)");
  EXPECT_EQ(Number("limit"), 65504);
  EXPECT_NEAR(Number("percent"), 20, 6);
  EXPECT_FALSE(First().has_ended());
  training_.Steps(30, [](int) { return Seen{.near = 300}; });
  EXPECT_TRUE(First().has_ended());
}

TEST_F(TrainingWatch, LargeActivationsThatDoNotGrowAreNoWarning) {
  // About half of the largest number, with outliers, from the first step on and after small ones.
  training_.Steps(
      500, [&](int) { return Seen{.near = std::min(60'000.0, 20'000 * training_.Noise(0.15))}; });
  EXPECT_THAT(training_.Ids(), IsEmpty());
  // Steps of the canary know nothing of activations.
  training_.Steps(
      200, [](int i) { return Seen{.near = i % 2 == 0 ? 30'000.0 : 0, .full = i % 2 == 0}; });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(TrainingWatch, LossAndGradientThatGrowTogetherAreOneWarning) {
  Ordinary(200);
  training_.Steps(20, [&](int i) {
    return Seen{.norm = 1.8 * std::pow(2.0, i), .loss = 0.7 * std::pow(2.0, i)};
  });
  EXPECT_THAT(training_.Ids(), ElementsAre("training-diverging"));
  EXPECT_NEAR(Number("loss_median"), 0.7, 0.1);
  EXPECT_GT(Number("loss"), 5);
}

TEST_F(TrainingWatch, WhatJoinsLaterJoinsTheWarningThatIsThere) {
  Ordinary(200);
  training_.Steps(12, [&](int i) { return Seen{.norm = 1.8 * std::pow(4.0, i), .loss = 0.7}; });
  ASSERT_THAT(training_.Ids(), ElementsAre("gradient-exploding"));
  training_.Steps(12, [&](int i) {
    return Seen{.norm = 1e7 * std::pow(4.0, i), .loss = 0.7 * std::pow(4.0, i)};
  });
  EXPECT_THAT(training_.Ids(), ElementsAre("training-diverging"));
}

// Clipping holds the norm that the optimizer is given.
TEST_F(TrainingWatch, ALossThatGrowsUnderClippedGradientsIsTold) {
  training_.Steps(200, [&](int) { return Seen{.norm = 1, .loss = 2 * training_.Noise(0.05)}; });
  training_.Steps(30, [&](int i) { return Seen{.norm = 1, .loss = 2 * std::pow(1.5, i)}; });
  EXPECT_THAT(training_.Ids(), ElementsAre("loss-blowing-up"));
  EXPECT_EQ(Number("gradient_norm_held"), 1);
}

// Nothing clips: the norm goes from 1e6 to 4e21 in the step in which the loss is told.
TEST_F(TrainingWatch, ANormThatLeapsWithTheLossIsNotHeld) {
  training_.Steps(60, [&](int) {
    return Seen{.norm = 1e6 * training_.Noise(0.1), .loss = 2 * training_.Noise(0.05)};
  });
  training_.StepsUntilRaised(30, [&](int i) {
    return Seen{.norm = (i < 4 ? 1e6 : 4e21) * training_.Noise(0.1), .loss = 2 * std::pow(4, i)};
  });
  EXPECT_THAT(training_.Ids(), ElementsAre("training-diverging"));
  EXPECT_FALSE(First().numbers().contains("gradient_norm_held"));
}

TEST_F(TrainingWatch, ANormThatNobodyHoldsIsNotSaidToBeHeld) {
  Ordinary(200);
  training_.Steps(30, [&](int i) {
    return Seen{.norm = 1.8 * training_.Noise(0.1), .loss = 0.7 * std::pow(1.5, i)};
  });
  ASSERT_THAT(training_.Ids(), ElementsAre("loss-blowing-up"));
  EXPECT_FALSE(First().numbers().contains("gradient_norm_held"));
  EXPECT_TRUE(First().numbers().contains("gradient_norm"));
}

TEST_F(TrainingWatch, AWarningIsRaisedOnceWhileItLastsAndEndsWithIt) {
  Ordinary(200);
  training_.Steps(10, [&](int i) { return Seen{.norm = std::pow(10.0, i), .loss = 0.7}; });
  training_.Steps(300,
                  [&](int i) { return Seen{.norm = std::pow(10.0, 10 + i / 50), .loss = 0.7}; });
  ASSERT_THAT(training_.Ids(), ElementsAre("gradient-exploding"));
  EXPECT_FALSE(First().has_ended());
  Ordinary(300);
  EXPECT_THAT(training_.Ids(), ElementsAre("gradient-exploding"));
  EXPECT_TRUE(First().has_ended());
  training_.Steps(20, [&](int i) { return Seen{.norm = std::pow(10.0, i), .loss = 0.7}; });
  EXPECT_THAT(training_.Ids(), ElementsAre("gradient-exploding", "gradient-exploding"));
}

TEST_F(TrainingWatch, NamesTheStepThatTheOpsOfItSaw) {
  training_.Steps(20, [&](int) { return Seen{.norm = 1}; });
  training_.Steps(20, [&](int i) { return Seen{.norm = std::pow(100.0, i + 1)}; });
  ASSERT_FALSE(training_.history().alarms().empty());
  // 20, 21 and so on are the numbers of the growing steps.
  EXPECT_THAT(First().clocks().optimizer_steps(0), testing::AllOf(Gt(19u), Lt(25u)));
  EXPECT_EQ(First().clocks().optimizer_ranges(), First().clocks().optimizer_steps(0));
}

TEST_F(TrainingWatch, AGradientThatFallsByDecadesAndStaysIsVanishing) {
  Ordinary(200);
  const int steps = training_.StepsUntilRaised(
      100, [&](int) { return Seen{.norm = 1e-7 * training_.Noise(0.3), .loss = 0.69}; });
  EXPECT_THAT(training_.Ids(), ElementsAre("gradient-vanishing"));
  EXPECT_LE(steps, 25);
  training_.Steps(400, [&](int) { return Seen{.norm = 1e-7, .loss = 0.69}; });
  EXPECT_THAT(training_.Ids(), ElementsAre("gradient-vanishing"));
}

TEST_F(TrainingWatch, WhatComesDownHalfWayFromABlowUpHasNotVanished) {
  Ordinary(200);
  training_.Steps(9, [&](int i) { return Seen{.norm = std::pow(10.0, i), .loss = 0.7}; });
  training_.Steps(200, [&](int) { return Seen{.norm = 1e8, .loss = 0.7}; });
  training_.Steps(60, [&](int) { return Seen{.norm = 1e3, .loss = 0.7}; });
  EXPECT_THAT(training_.Ids(), ElementsAre("gradient-exploding"));
}

// Updates that were too large saturate what they hit.
TEST_F(TrainingWatch, WhatVanishesAfterABlowUpIsToldToo) {
  Ordinary(200);
  training_.Steps(12, [&](int i) { return Seen{.norm = std::pow(10.0, i), .loss = 0.7}; });
  training_.Steps(60, [&](int) { return Seen{.norm = 1e-9, .loss = 0.9}; });
  EXPECT_THAT(training_.Ids(), ElementsAre("gradient-exploding", "gradient-vanishing"));
}

TEST_F(TrainingWatch, WithoutALossTheFallHasToBeDeeper) {
  training_.Steps(200, [&](int) { return Seen{.norm = training_.Noise(0.1)}; });
  training_.Steps(100, [&](int) { return Seen{.norm = 3e-4 * training_.Noise(0.1)}; });
  EXPECT_THAT(training_.Ids(), IsEmpty());
  ToldTraining deeper;
  deeper.Steps(200, [&](int) { return Seen{.norm = deeper.Noise(0.1)}; });
  deeper.Steps(100, [&](int) { return Seen{.norm = 1e-6 * deeper.Noise(0.1)}; });
  EXPECT_THAT(deeper.Ids(), ElementsAre("gradient-vanishing"));
}

TEST_F(TrainingWatch, GradientsThatAreMostlyZeroAreTold) {
  training_.Steps(19, [&](int) { return Seen{.norm = 0.1, .loss = 1, .gradients = 6, .zero = 5}; });
  EXPECT_THAT(training_.Ids(), IsEmpty());
  training_.Steps(99, [&](int) { return Seen{.norm = 0.1, .loss = 1, .gradients = 6, .zero = 5}; });
  EXPECT_THAT(training_.Ids(), ElementsAre("gradients-zero"));
  EXPECT_EQ(Number("gradients_zero"), 5);
}

TEST_F(TrainingWatch, ParametersThatNeverGetAGradientAreInformation) {
  training_.Steps(500, [&](int) {
    return Seen{.norm = training_.Noise(0.1), .loss = 1, .gradients = 6, .missing = 2};
  });
  ASSERT_THAT(training_.Ids(), ElementsAre("parameters-without-gradient"));
  EXPECT_EQ(First().severity(), "info");
  EXPECT_EQ(Number("gradients_missing"), 2);
  EXPECT_EQ(Number("parameters"), 8);
  EXPECT_EQ(First().clocks().optimizer_steps(0), 29u);
}

TEST_F(TrainingWatch, AScaleBelowOneIsSinking) {
  double scale = 4;
  training_.Steps(40, [&](int i) {
    const bool skipped = i % 12 == 0;
    scale *= skipped ? 0.5 : 1;
    return Seen{.loss = 1, .scale = scale, .skipped = skipped};
  });
  ASSERT_THAT(training_.Ids(), ElementsAre("scaler-sinking"));
  EXPECT_EQ(Number("scale"), 0.5);
  EXPECT_EQ(Number("scale_first"), 2);
}

TEST_F(TrainingWatch, SkipsInTheMiddleOfATrainingAreToldWithTheFourth) {
  double scale = 65536;
  training_.Steps(100, [&](int) { return Seen{.norm = 1, .loss = 1, .scale = scale}; });
  const int steps = training_.StepsUntilRaised(50, [&](int i) {
    const bool skipped = i % 3 == 0;
    scale *= skipped ? 0.5 : 1;
    return Seen{.loss = 1, .scale = scale, .skipped = skipped};
  });
  EXPECT_EQ(steps, 10);
  EXPECT_THAT(training_.Ids(), ElementsAre("scaler-sinking"));
  EXPECT_EQ(Number("skips"), 4);
}

TEST_F(TrainingWatch, AScaleThatFallsWithoutEndFromTheStartIsToldAtTheEighthSkip) {
  double scale = 65536;
  const int steps = training_.StepsUntilRaised(
      40, [&](int) { return Seen{.loss = 1, .scale = scale /= 2, .skipped = true}; });
  EXPECT_EQ(steps, 8);
  EXPECT_THAT(training_.Ids(), ElementsAre("scaler-sinking"));
}

// ---- what must not trip it

TEST_F(TrainingWatch, OptimizersHaveHistoriesOfTheirOwn) {
  training_.Steps(600, [&](int i) {
    const uint32_t optimizer = static_cast<uint32_t>(i % 2);
    return Seen{.norm = optimizer == 0 ? 1e-6 : 1e6, .loss = 1, .optimizer = optimizer};
  });
  EXPECT_THAT(training_.Ids(), IsEmpty());
  training_.Steps(60, [&](int i) {
    const uint32_t optimizer = static_cast<uint32_t>(i % 2);
    return Seen{.norm = optimizer == 0 ? 1e-6 * std::pow(10.0, i / 2) : 1e6,
                .loss = 1,
                .optimizer = optimizer};
  });
  ASSERT_THAT(training_.Ids(), ElementsAre("gradient-exploding"));
  EXPECT_EQ(Number("optimizer"), 0);
}

TEST_F(TrainingWatch, WhatIsReadOfBadParametersRaisesNothing) {
  Ordinary(200);
  training_.Steps(100, [&](int i) {
    return Seen{.norm = std::pow(10.0, i), .loss = 1, .parameters_bad = true};
  });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

// Steps come from a segment that the job can write anything into.
TEST_F(TrainingWatch, TakesAnyNumbers) {
  const double hostile[] = {kNan, kInf, -kInf, 0, -1, 1e308, 1e-308, -1e308, 4e-324};
  training_.Steps(50'000, [&](int i) {
    Seen seen{.norm = hostile[i % 9], .loss = hostile[i / 9 % 9], .scale = hostile[i / 81 % 9]};
    seen.skipped = i % 11 == 0;
    seen.optimizer = static_cast<uint32_t>(i) * 2'654'435'761u;
    seen.gradients = seen.zero = seen.missing = ~0u - static_cast<uint32_t>(i % 3);
    return seen;
  });
  EXPECT_LE(training_.history().alarms_size(), kAlarmsMax);
  EXPECT_LE(training_.history().optimizers_size(), kWatchedOptimizersMax);
}

TEST_F(TrainingWatch, KeepsNoMoreAfterAMillionStepsThanAfterAThousand) {
  Ordinary(1'000);
  const size_t bytes = training_.history().ByteSizeLong();
  EXPECT_LT(bytes, 3'200u);
  training_.Steps(50'000, [&](int i) {
    return Seen{.norm = std::pow(10.0, i % 1'000 / 30.0),
                .loss = 1 + i % 977,
                .missing = i % 50 < 40 ? 1u : 0u};
  });
  EXPECT_LT(training_.history().ByteSizeLong(), bytes + kAlarmsMax * 400);
  EXPECT_GT(training_.history().alarms_dropped(), 0u);
}

// The daemon folds batch by batch and keeps the state in between; a report may do it in one go.
TEST_F(TrainingWatch, IsTheSameFromAStateThatWasStoredAfterAnyStep) {
  Ordinary(150);
  training_.Steps(20,
                  [&](int i) { return Seen{.norm = std::pow(3.0, i), .loss = std::pow(3.0, i)}; });
  Ordinary(100);
  for (const size_t cut :
       {size_t{0}, size_t{3}, size_t{149}, size_t{155}, size_t{160}, size_t{260}}) {
    TrainingHistory history;
    for (size_t i = 0; i < cut; ++i) Watch(training_.steps()[i], history);
    TrainingHistory later;
    ASSERT_TRUE(later.ParseFromString(history.SerializeAsString()));
    for (const StepSummary& step : training_.steps()) Watch(step, later);  // the old ones again
    EXPECT_EQ(later.DebugString(), training_.history().DebugString()) << cut;
  }
}

// Of dead weights nothing is told but the loss.
TEST_F(TrainingWatch, TheLossOfDeadWeightsIsKept) {
  Ordinary(20);
  EXPECT_FALSE(training_.history().has_dead());
  training_.Step({.loss = 0.7, .parameters_bad = true});
  EXPECT_FALSE(training_.history().has_dead());
  training_.Steps(5, [](int) { return Seen{.loss = kNan, .parameters_bad = true}; });
  const DeadSteps& dead = training_.history().dead();
  EXPECT_EQ(dead.first().optimizer_ranges(), 21u);
  EXPECT_EQ(dead.last().optimizer_ranges(), 25u);
  EXPECT_FALSE(dead.ended());
  Ordinary(1);
  training_.Steps(5, [](int) { return Seen{.loss = kNan, .parameters_bad = true}; });
  EXPECT_TRUE(dead.ended());
  EXPECT_EQ(dead.last().optimizer_ranges(), 25u);
}

}  // namespace
}  // namespace nanwatch
