// SPDX-License-Identifier: Apache-2.0
#include "daemon/watch/stats_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "daemon/watch/training_watch.h"
#include "proto/wire/record.h"

namespace nanwatch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A parameter that nothing is wrong with: a matrix of 32 x 32.
struct Told {
  std::string name;
  double zero_share = 0;
  double ratio = 1e-3;
  double gradient_rms = 1e-2;
  uint32_t dims = 2;
  uint64_t numel = 1024;
  wire::ElementType type = wire::ElementType::kFloat32;
  double eps = 1e-8;
  bool fused = false;
  bool has_gradient = true;
};

const Told kBias = {.name = "a.bias", .dims = 1, .numel = 32};

class StatsWatch : public testing::Test {
 protected:
  StatsSnapshot Snapshot(const std::vector<Told>& parameters) {
    StatsSnapshot snapshot;
    snapshot.set_number(number_++);
    snapshot.set_optimizer_class(optimizer_class_);
    snapshot.mutable_clocks()->set_optimizer_ranges(step_);
    snapshot.set_time_ns(step_ * 10 + 5);
    step_ += interval_;
    for (const Told& told : parameters) {
      ParameterStats& parameter = *snapshot.add_parameters();
      parameter.set_name(told.name);
      parameter.set_root("Model#0");
      parameter.set_dims(told.dims);
      parameter.set_numel(told.numel);
      parameter.set_element_type(static_cast<uint32_t>(told.type));
      parameter.set_eps(told.eps);
      parameter.set_fused(told.fused);
      parameter.set_has_gradient(told.has_gradient);
      parameter.set_weight_norm(10);
      parameter.set_update_norm(10 * told.ratio);
      if (!told.has_gradient) continue;
      parameter.set_gradient_zero_share(told.zero_share);
      parameter.set_gradient_norm(told.gradient_rms * std::sqrt(static_cast<double>(told.numel)));
    }
    return snapshot;
  }
  void Tell(int count, const std::vector<Told>& parameters) {
    for (int i = 0; i < count; ++i) Watch(Snapshot(parameters), history_);
  }
  std::vector<std::string> Ids() const {
    std::vector<std::string> ids;
    for (const TrainingAlarm& alarm : history_.alarms()) ids.push_back(alarm.id());
    return ids;
  }
  std::vector<std::string> Params() const {
    std::vector<std::string> params;
    for (const TrainingAlarm& alarm : history_.alarms()) params.push_back(alarm.param());
    return params;
  }

  std::string optimizer_class_ = "AdamW";
  uint32_t interval_ = 100;
  uint32_t step_ = 0;
  uint64_t number_ = 0;
  TrainingHistory history_;
};

const std::vector<Told> kHealthy = {{.name = "embedding.weight", .zero_share = 0.999},
                                    {.name = "a.weight"},
                                    {.name = "a.bias", .ratio = 3, .dims = 1, .numel = 32},
                                    {.name = "b.weight", .gradient_rms = 1e-6}};

TEST_F(StatsWatch, SaysNothingOfWhatIsUsual) {
  Tell(40, kHealthy);
  EXPECT_THAT(Ids(), IsEmpty());
}

// ---- epsilon

TEST_F(StatsWatch, AnEpsThatIsZeroInFloat16IsToldAtOnceAndOnce) {
  const Told half = {.name = "b.weight", .type = wire::ElementType::kFloat16};
  Tell(5, {{.name = "a.weight"}, half});
  EXPECT_THAT(Ids(), ElementsAre("epsilon-lost"));
  EXPECT_THAT(Params(), ElementsAre("b.weight"));
  EXPECT_EQ(history_.alarms(0).numbers().at("eps"), 1e-8);
  EXPECT_EQ(history_.alarms(0).numbers().at("parameters"), 1);
  EXPECT_FALSE(history_.alarms(0).has_ended());
}

TEST_F(StatsWatch, AnEpsIsNotLostWhereTheTypeHasItOrNothingIsRoundedToIt) {
  const auto half = wire::ElementType::kFloat16;
  Tell(1, {{.name = "fits", .type = half, .eps = 3.1e-8}});  // just above half of 2^-24
  Tell(1, {{.name = "fused", .type = half, .fused = true}});
  Tell(1, {{.name = "asked for", .type = half, .eps = 0}});
  Tell(1, {{.name = "brain", .type = wire::ElementType::kBFloat16}});
  Tell(1, {{.name = "single", .eps = 1e-30}});
  optimizer_class_ = "SGD";
  Tell(1, {{.name = "has no such root", .type = half}});
  EXPECT_THAT(Ids(), IsEmpty());
  optimizer_class_ = "Adam";
  Tell(1, {{.name = "lost", .type = half, .eps = 2.9e-8}});
  EXPECT_THAT(Ids(), ElementsAre("epsilon-lost"));
}

// ---- dead units

TEST_F(StatsWatch, ALayerWhoseGradientsAreZeroForManyLooksIsDead) {
  const std::vector<Told> dead = {{.name = "a.weight", .zero_share = 0.96},
                                  {.name = "a.bias", .zero_share = 0.97, .dims = 1, .numel = 32},
                                  {.name = "b.weight"},
                                  {.name = "b.bias", .dims = 1, .numel = 32}};
  Tell(7, dead);
  EXPECT_THAT(Ids(), IsEmpty());
  Tell(3, dead);
  EXPECT_THAT(Ids(), ElementsAre("dead-units"));
  EXPECT_THAT(Params(), ElementsAre("a"));
  EXPECT_EQ(history_.alarms(0).numbers().at("zero_percent"), 96);
  EXPECT_EQ(history_.alarms(0).numbers().at("layers"), 1);
  Tell(1, kHealthy);
  EXPECT_TRUE(history_.alarms(0).has_ended());
}

TEST_F(StatsWatch, ALayerIsNotDeadForOneLookWithoutZeros) {
  const std::vector<Told> dead = {{.name = "a.weight", .zero_share = 1}, {.name = "b.weight"}};
  for (int i = 0; i < 10; ++i) {
    Tell(7, dead);
    Tell(1, {{.name = "a.weight", .zero_share = 0.2}, {.name = "b.weight"}});
  }
  EXPECT_THAT(Ids(), IsEmpty());
}

TEST_F(StatsWatch, ManyLooksAtNeighbouringStepsAreNotMany) {
  interval_ = 1;
  const std::vector<Told> dead = {{.name = "a.weight", .zero_share = 1}, {.name = "b.weight"}};
  Tell(20, dead);
  EXPECT_THAT(Ids(), IsEmpty());
  Tell(1, dead);
  EXPECT_THAT(Ids(), ElementsAre("dead-units"));
}

TEST_F(StatsWatch, WhatIsLookedUpByRowIsNotDeadAndNeitherIsALayerWithOneLivingParameter) {
  Tell(20, {{.name = "embedding.weight", .zero_share = 0.999},
            {.name = "lstm.weight_hh", .zero_share = 1},  // a sequence of one step
            {.name = "lstm.bias", .dims = 1, .numel = 32},
            {.name = "b.weight"}});
  EXPECT_THAT(Ids(), IsEmpty());
}

TEST_F(StatsWatch, WhereMostIsZeroItIsNotOfALayer) {
  Tell(20, {{.name = "a.weight", .zero_share = 1},
            {.name = "b.weight", .zero_share = 1},
            {.name = "c.weight"}});
  EXPECT_THAT(Ids(), IsEmpty());
}

// ---- updates

TEST_F(StatsWatch, UpdatesAsLargeAsTheWeightsAreTold) {
  const std::vector<Told> large = {{.name = "a.weight", .ratio = 0.2},
                                   kBias,
                                   {.name = "b.weight", .ratio = 0.11},
                                   {.name = "c.weight"},
                                   {.name = "d.weight"}};
  Tell(3, large);  // the first at step 0 does not count
  EXPECT_THAT(Ids(), IsEmpty());
  Tell(2, large);
  EXPECT_THAT(Ids(), ElementsAre("update-too-large"));
  EXPECT_THAT(Params(), ElementsAre("a.weight"));
  EXPECT_NEAR(history_.alarms(0).numbers().at("ratio"), 0.2, 1e-12);
  EXPECT_EQ(history_.alarms(0).numbers().at("matrices"), 4);
  EXPECT_EQ(history_.alarms(0).numbers().at("matrices_large"), 2);
  EXPECT_EQ(history_.alarms(0).numbers().at("snapshots"), 3);
}

TEST_F(StatsWatch, OneMatrixAloneNeedsMore) {
  const auto one = [](double ratio) {
    return std::vector<Told>{
        {.name = "a.weight", .ratio = ratio}, {.name = "b.weight"}, {.name = "c.weight"}};
  };
  Tell(20, one(0.29));
  EXPECT_THAT(Ids(), IsEmpty());
  Tell(4, one(0.31));
  EXPECT_THAT(Ids(), IsEmpty());
  Tell(1, one(0.31));
  EXPECT_THAT(Ids(), ElementsAre("update-too-large"));
}

TEST_F(StatsWatch, WhatBeginsAtZeroGrowsInItsFirstSteps) {
  interval_ = 1;
  for (int step = 1; step < 60; ++step) Tell(1, {{.name = "a.weight", .ratio = 2.0 / step}});
  EXPECT_THAT(Ids(), IsEmpty());
}

TEST_F(StatsWatch, NoUpdateIsTooLargeInTheFirstSteps) {
  interval_ = 1;
  Tell(30, {{.name = "a.weight", .ratio = 0.9}, {.name = "b.weight"}, {.name = "c.weight"}});
  Tell(30, kHealthy);
  EXPECT_THAT(Ids(), IsEmpty());
}

TEST_F(StatsWatch, BiasesAndWhatIsNoNumberAreNotJudged) {
  Told nothing = {.name = "a.weight", .ratio = std::numeric_limits<double>::quiet_NaN()};
  Told bias = kBias;
  bias.ratio = 5;
  Tell(20, {nothing, bias, {.name = "tiny", .ratio = 1, .numel = 8}, {.name = "b.weight"}});
  EXPECT_THAT(Ids(), IsEmpty());
}

// ---- layers that the gradient does not reach

TEST_F(StatsWatch, ALayerThatNextToNothingOfTheGradientReachesIsTold) {
  const auto apart = [](double rms) {
    return std::vector<Told>{
        {.name = "a.weight", .gradient_rms = rms}, {.name = "b.weight"}, {.name = "c.weight"}};
  };
  Tell(20, apart(2e-8));
  EXPECT_THAT(Ids(), IsEmpty());
  Tell(5, apart(0.9e-8));
  EXPECT_THAT(Ids(), ElementsAre("gradient-vanishing-layer"));
  EXPECT_THAT(Params(), ElementsAre("a.weight"));
}

// ---- what is missing, and the fold

TEST_F(StatsWatch, NamesAParameterForThoseThatAreCountedAsMissing) {
  const StatsSnapshot snapshot =
      Snapshot({{.name = "a.weight"}, {.name = "lost.weight", .has_gradient = false}});
  std::vector<StepSummary> steps;
  for (uint32_t i = 0; i < 30; ++i) {
    StepSummary& step = steps.emplace_back();
    step.set_index(i);
    step.set_time_ns(i * 10 + 6);
    step.set_gradients(1);
    step.set_gradients_missing(1);
  }
  WatchAll(steps, std::vector<StatsSnapshot>{snapshot}, history_);
  EXPECT_THAT(Ids(), ElementsAre("parameters-without-gradient"));
  EXPECT_THAT(Params(), ElementsAre("lost.weight"));
}

TEST_F(StatsWatch, ASnapshotThatWasSeenChangesNothing) {
  const StatsSnapshot snapshot = Snapshot({{.name = "a.weight", .zero_share = 1}, {.name = "b"}});
  Watch(snapshot, history_);
  const std::string once = history_.SerializeAsString();
  Watch(snapshot, history_);
  EXPECT_EQ(history_.SerializeAsString(), once);
}

TEST_F(StatsWatch, RemembersNoMoreThanItMay) {
  for (int round = 0; round < 30; ++round) {
    std::vector<Told> parameters = {{.name = "alive.weight"}};
    for (int i = 0; i < 500; ++i) {
      const std::string name = "l" + std::to_string(i);
      parameters.push_back({.name = name + ".weight", .zero_share = 1, .ratio = 1});
      parameters.push_back({.name = "alive" + name + ".weight"});
    }
    Tell(1, parameters);
  }
  ASSERT_EQ(history_.optimizers_size(), 1);
  EXPECT_EQ(history_.optimizers(0).dead_size(), kStreaksMax);
  EXPECT_EQ(history_.optimizers(0).large_updates_size(), kStreaksMax);
  EXPECT_LT(history_.ByteSizeLong(), 16'384u);
}

}  // namespace
}  // namespace nanwatch
