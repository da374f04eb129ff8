// SPDX-License-Identifier: Apache-2.0
// Shapes that curves of healthy runs have: nothing is raised. Each is tried with many seeds' worth
// of noise, by going on for long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/watch/told_training.h"

namespace nanwatch {
namespace {

using testing::IsEmpty;

constexpr int kLong = 20'000;

class HealthyTraining : public testing::Test {
 protected:
  // `norm` and `loss` under noise of that many decades (the first two thirds of steps lie within).
  Seen Noisy(double norm, double loss, double decades = 0.15) {
    return {.norm = norm * training_.Noise(decades), .loss = loss * training_.Noise(decades / 3)};
  }
  ToldTraining training_;
};

TEST_F(HealthyTraining, ANoisyPlateau) {
  training_.Steps(kLong, [&](int) { return Noisy(2, 0.7); });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(HealthyTraining, APlateauWithNoiseOfADecade) {
  training_.Steps(kLong, [&](int) { return Noisy(1e-3, 1e-4, 1.0); });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(HealthyTraining, NoNoiseAtAll) {
  training_.Steps(2'000, [&](int) { return Seen{.norm = 1, .loss = 1}; });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(HealthyTraining, AWarmUpInWhichTheGradientGrows) {
  training_.Steps(kLong, [&](int i) {
    const double warm = std::min(1.0, (i + 1) / 500.0);
    return Noisy(0.2 + 5 * warm, 2 + 8 * std::exp(-i / 300.0));
  });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(HealthyTraining, ACosineScheduleOverManyCycles) {
  training_.Steps(kLong, [&](int i) {
    const double wave = 1 + 0.9 * std::cos(i / 200.0);
    return Noisy(wave, 0.3 + wave, 0.1);
  });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(HealthyTraining, AFitThatBecomesPerfect) {
  training_.Steps(kLong, [&](int i) {
    const double left = std::pow(10.0, -i / 500.0);
    return Noisy(std::max(left, 1e-9), std::max(left * left, 1e-14), 0.3);
  });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(HealthyTraining, AFitThatBecomesPerfectWithinAFewSteps) {
  training_.Steps(400, [&](int i) {
    const double left = std::pow(10.0, -std::clamp(i - 100, 0, 14) / 2.0);
    return Noisy(left, left * left, 0.1);
  });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

// Adam on one fixed batch: after convergence the loss climbs by decades and comes back, below where
// it began.
TEST_F(HealthyTraining, InstabilityThatStaysBelowTheStart) {
  training_.Steps(4'000, [&](int i) {
    const double left = std::pow(10.0, -std::min(i, 600) / 100.0);
    const int phase = i % 700;
    const double bump =
        i > 700 && phase < 40 ? std::pow(10.0, 5 * (1 - std::abs(phase - 20) / 20.0)) : 1;
    return Noisy(left * bump, left * bump, 0.02);
  });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(HealthyTraining, SpikesThatRecover) {
  training_.Steps(kLong, [&](int i) {
    const int phase = i % 400;
    const double spike = i >= 400 && phase < 60 ? 1 + 80 * std::exp(-phase / 6.0) : 1;
    return Noisy(1.5 * spike, 2 * (1 + std::log10(spike)));
  });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(HealthyTraining, OneLargeBatchAThousandTimesAsSteep) {
  training_.Steps(3'000, [&](int i) { return i % 500 == 250 ? Noisy(2e3, 50) : Noisy(2, 1); });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(HealthyTraining, TwoLargeBatchesInARow) {
  training_.Steps(3'000, [&](int i) { return i % 500 / 2 == 125 ? Noisy(200, 9) : Noisy(2, 1); });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(HealthyTraining, AGanWhoseTwoSidesOscillate) {
  training_.Steps(kLong, [&](int i) {
    const double wave = std::pow(10.0, std::sin(i / 60.0));
    Seen seen = i % 2 == 0 ? Noisy(wave, 1 + wave) : Noisy(3 / wave, 1 + 1 / wave);
    seen.optimizer = static_cast<uint32_t>(i % 2);
    return seen;
  });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(HealthyTraining, ACriticWhoseLossCrossesZero) {
  training_.Steps(kLong, [&](int i) {
    Seen seen = Noisy(1, 1);
    seen.loss = 3 * std::sin(i / 100.0) + training_.Uniform();
    return seen;
  });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(HealthyTraining, RestartsOfTheScheduleAndOfTheModel) {
  training_.Steps(kLong, [&](int i) {
    const double left = std::exp(-(i % 1'000) / 250.0);
    return Noisy(0.3 + 5 * left, 0.2 + 3 * left);
  });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

// Layers that were frozen begin to learn: a higher level, which is flat.
TEST_F(HealthyTraining, AStepUpThatStays) {
  for (int seed = 0; seed < 200; ++seed) {
    ToldTraining training;
    training.Steps(300 + seed, [&](int) { return Seen{.norm = training.Noise(0.15)}; });
    training.Steps(2'000, [&](int) { return Seen{.norm = 30 * training.Noise(0.15)}; });
    EXPECT_THAT(training.Ids(), IsEmpty()) << seed;
  }
}

TEST_F(HealthyTraining, AStepUpThatSettlesWithoutNoise) {
  training_.Steps(300, [&](int) { return Seen{.norm = 1}; });
  training_.Steps(
      300, [&](int i) { return Seen{.norm = 25 * std::pow(10.0, 0.016 * std::min(i, 25))}; });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(HealthyTraining, AFixedBatchAtTheEdgeOfStability) {
  training_.Steps(5'000, [&](int i) {
    const double swing = 1 + 4 * std::abs(std::sin(i / 7.0)) * (i % 2);
    return Seen{.norm = swing, .loss = 0.4 + 0.1 * swing};
  });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(HealthyTraining, GradientsThatAreAbsentNowAndThen) {
  training_.Steps(2'000, [&](int i) {
    Seen seen = Noisy(1, 1);
    seen.missing = i % 7 == 0 ? 0 : 2;
    seen.gradients = 8;
    seen.zero = i % 5 == 0 ? 8 : 3;
    return seen;
  });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

// From 65536 down to 1024 in the first updates, then one skip in two thousand.
TEST_F(HealthyTraining, AScalerThatFindsItsScale) {
  double scale = 65536;
  training_.Steps(kLong, [&](int i) {
    Seen seen = Noisy(1, 1);
    seen.skipped = i < 6 || i % 2'000 == 1'999;
    if (seen.skipped) seen.norm.reset();
    scale *= seen.skipped ? 0.5 : i % 2'000 == 1'000 && i > 2'000 ? 2 : 1;
    seen.scale = scale;
    return seen;
  });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(HealthyTraining, AScalerThatBeginsFarTooHigh) {
  double scale = std::pow(2.0, 24);
  training_.Steps(500, [&](int i) {
    scale *= i < 15 ? 0.5 : 1;
    return Seen{.loss = 1, .scale = scale, .skipped = i < 15};
  });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

TEST_F(HealthyTraining, AScaleBelowOneThatTheUserChose) {
  training_.Steps(500, [&](int) {
    Seen seen = Noisy(1, 1);
    seen.scale = 0.5;
    return seen;
  });
  EXPECT_THAT(training_.Ids(), IsEmpty());
}

}  // namespace
}  // namespace nanwatch
