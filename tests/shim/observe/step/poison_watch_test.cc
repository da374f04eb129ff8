// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/poison_watch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/shim/observe/observed_training.h"

namespace nanwatch {
namespace {

using Border = PoisonWatch::Border;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class PoisonWatchTest : public testing::Test {
 protected:
  // An optimizer has stepped, and a parameter of it is bad.
  void EnterPoisoned() {
    on_.progress.Begin(on_.progress.NumberOf(&parameter_, "SGD", nullptr));
    on_.poison.Mark(nullptr, ObservedTraining::Plain(parameter_));
    on_.poison_watch.Settle();
    ASSERT_TRUE(on_.poison.Poisoned());
  }
  void At(Border border) { on_.poison_watch.At(&on_.thread, border); }
  uint64_t Uncounted() {
    return on_.thread.counters.unchecked[static_cast<int>(wire::Unchecked::kAfterPoisoned)];
  }

  ObservedTraining on_;
  at::Tensor parameter_ = at::full({4}, kNan);
};

TEST_F(PoisonWatchTest, ForgetsWhatIsBadWhereParametersAre) {
  const at::Tensor activation = at::full({4}, kNan);
  const BadOutput output{ObservedTraining::Plain(activation), 0, false};
  on_.known_bad.Remember(&output, 1, {.value = {5, 1}, .site = 1, .written = Written{}});
  EnterPoisoned();
  EXPECT_EQ(on_.bad_values.size(), 0u);
  EXPECT_FALSE(on_.tracking.armed());
}

TEST_F(PoisonWatchTest, WatchesNothingFromTheNextBorderOn) {
  EnterPoisoned();
  EXPECT_FALSE(on_.poison.Blind());
  At(Border::kStepBegins);
  EXPECT_TRUE(on_.poison.Blind());
  EXPECT_TRUE(on_.poison.Ignores());
}

TEST_F(PoisonWatchTest, WatchesOnWhereALossIsFiniteAllTheSame) {
  const BadOutput output{ObservedTraining::Plain(parameter_), 0, false};
  Written written;
  written.target = wire::Target::kParameter;
  on_.known_bad.Remember(&output, 1, {.value = {5, 1}, .site = 1, .written = written});
  EnterPoisoned();
  At(Border::kStepBegins);
  on_.poison_watch.OnFiniteLoss();
  EXPECT_FALSE(on_.poison.Poisoned());
  EXPECT_FALSE(on_.poison.Blind());
  // What is bad is known to be bad, and no reason to track inputs.
  BadEntry known;
  ASSERT_TRUE(on_.known_bad.Find(ObservedTraining::Plain(parameter_), &known));
  EXPECT_EQ(known.value.ticket, 5u);
  EXPECT_FALSE(on_.tracking.armed());
}

TEST_F(PoisonWatchTest, WhatSpoilsNoLossIsLeftAloneUntilALossIsBad) {
  EnterPoisoned();
  on_.poison_watch.OnFiniteLoss();
  on_.poison.Mark(nullptr, ObservedTraining::Plain(parameter_));
  on_.poison_watch.Settle();
  EXPECT_FALSE(on_.poison.Poisoned());
  on_.poison.OnBadLoss();
  EnterPoisoned();
}

TEST_F(PoisonWatchTest, ModelsThatTrainByTurnsAreWatchedForGood) {
  for (int turn = 0; turn < 3; ++turn) {
    on_.poison.OnBadLoss();
    EnterPoisoned();
    on_.poison_watch.OnFiniteLoss();
  }
  on_.poison.OnBadLoss();
  on_.poison.Mark(nullptr, ObservedTraining::Plain(parameter_));
  on_.poison_watch.Settle();
  EXPECT_FALSE(on_.poison.Poisoned());
}

TEST_F(PoisonWatchTest, CountsTheStepsThatNobodyWatched) {
  EnterPoisoned();
  At(Border::kStepBegins);
  At(Border::kStepEnded);
  At(Border::kStepBegins);
  At(Border::kStepEnded);
  EXPECT_EQ(Uncounted(), 2u);
}

TEST_F(PoisonWatchTest, CountsASkippedStepByItsScaler) {
  EnterPoisoned();
  At(Border::kCall);
  At(Border::kScaleUpdated);
  EXPECT_EQ(Uncounted(), 1u) << "no step was seen to begin";
  At(Border::kStepBegins);
  At(Border::kScaleUpdated);
  EXPECT_EQ(Uncounted(), 1u) << "the step counts where it ends";
}

TEST_F(PoisonWatchTest, WatchesAgainAtOnceWhereTheParameterIsGood) {
  EnterPoisoned();
  At(Border::kStepBegins);
  parameter_.fill_(1);
  At(Border::kStepEnded);
  EXPECT_FALSE(on_.poison.Blind());
  EXPECT_FALSE(on_.poison.Poisoned());
  EXPECT_EQ(on_.poison_watch.ended_in_step(), 0u);
}

TEST_F(PoisonWatchTest, WatchesOnWhereOneElementIsStillBad) {
  EnterPoisoned();
  At(Border::kStepBegins);
  parameter_.fill_(1);
  parameter_[2] = kNan;
  At(Border::kStepEnded);
  EXPECT_TRUE(on_.poison.Blind());
}

TEST_F(PoisonWatchTest, WatchesProgramsWithoutAnOptimizerOn) {
  on_.poison.Mark(nullptr, ObservedTraining::Plain(parameter_));
  on_.poison_watch.Settle();
  At(Border::kCall);
  EXPECT_TRUE(on_.poison.Poisoned());
  EXPECT_FALSE(on_.poison.Blind()) << "its ops show its steps";
}

TEST_F(PoisonWatchTest, WatchesOnForThoseWhoWantToStopAtABadGradient) {
  on_.stops_on_anomaly = true;
  EnterPoisoned();
  At(Border::kStepBegins);
  EXPECT_FALSE(on_.poison.Blind());
}

TEST_F(PoisonWatchTest, DoesNothingWhereNoParameterIsBad) {
  At(Border::kStepBegins);
  At(Border::kStepEnded);
  EXPECT_FALSE(on_.poison.Blind());
  EXPECT_EQ(Uncounted(), 0u);
}

TEST_F(PoisonWatchTest, AsksAGpuOnceInEightSteps) {
  on_.late.on = true;
  on_.progress.Begin(on_.progress.NumberOf(&parameter_, "SGD", nullptr));
  PlainTensor plain = ObservedTraining::Plain(parameter_);
  plain.gpu = 0;
  on_.poison.Mark(nullptr, plain);
  on_.poison_watch.Settle();
  At(Border::kStepBegins);
  for (int i = 0; i < 7; ++i) At(Border::kStepEnded);
  EXPECT_TRUE(on_.late.checked.empty());
  At(Border::kStepEnded);
  EXPECT_EQ(on_.late.checked, std::vector<CheckedAs>({CheckedAs::kProbe}));
}

TEST_F(PoisonWatchTest, EndsWhereAGpuSaysThatAllAreGood) {
  on_.late.on = true;
  on_.progress.Begin(on_.progress.NumberOf(&parameter_, "SGD", nullptr));
  PlainTensor plain = ObservedTraining::Plain(parameter_);
  plain.gpu = 0;
  on_.poison.Mark(nullptr, plain);
  on_.poison_watch.Settle();
  At(Border::kStepBegins);
  for (int i = 0; i < 8; ++i) At(Border::kStepEnded);
  on_.poison_watch.OnProbe(/*event=*/1, /*tensors=*/1, /*bad=*/false);
  EXPECT_FALSE(on_.poison.Poisoned());
  At(Border::kStepBegins);
  EXPECT_FALSE(on_.poison.Blind());
}

}  // namespace
}  // namespace nanwatch
