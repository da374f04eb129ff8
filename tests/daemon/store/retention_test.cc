// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "daemon/store/store.h"
#include "tests/daemon/store/batch_builder.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

class RetentionTest : public testing::Test {
 protected:
  RetentionTest() : store_(*Store::OpenForWriting(directory_ / "nanwatch.db")) {}

  TemporaryDirectory directory_;
  Store store_;
};

TEST_F(RetentionTest, ARunKeepsItsFirstAndItsNewestRecordsAndCountsTheRest) {
  constexpr uint64_t kAll = kRecordsPerRunMax + 3'000;
  for (uint64_t from = 0; from < kAll; from += 1'000) {
    RunBatch batch = BatchOf(1);
    for (uint64_t i = 0; i < 1'000; ++i) AddRecord(batch, from + i);
    ASSERT_TRUE(store_.Commit({batch}, 1).ok());
  }
  const RunFacts facts = store_.Facts(RunId(1)).value();
  EXPECT_LE(static_cast<uint64_t>(facts.records_size()), kRecordsPerRunMax);
  EXPECT_EQ(facts.state().records_thinned() + static_cast<uint64_t>(facts.records_size()), kAll);
  for (uint64_t i = 0; i < kFirstRecordsPerRun; ++i) {
    ASSERT_EQ(facts.records(static_cast<int>(i)).ticket(), i);
  }
  EXPECT_EQ(facts.records(facts.records_size() - 1).ticket(), kAll - 1);
}

TEST_F(RetentionTest, ARunKeepsTheFirstAndTheNewestOfItsTrails) {
  constexpr uint64_t kAll = 3 * kTrailsPerRunMax;
  for (uint64_t i = 0; i < kAll; ++i) {
    RunBatch batch = BatchOf(1);
    AddRecord(batch, 2 * i);
    Record& trail = batch.records.emplace_back();
    trail.set_ticket(2 * i + 1);
    trail.mutable_trail()->set_value(2 * i);
    ASSERT_TRUE(store_.Commit({batch}, 1).ok());
  }
  const RunFacts facts = store_.Facts(RunId(1)).value();
  std::vector<uint64_t> kept;
  for (const Record& record : facts.records()) {
    if (record.has_trail()) kept.push_back(record.trail().value() / 2);
  }
  ASSERT_EQ(kept.size(), static_cast<size_t>(kTrailsPerRunMax));
  constexpr uint64_t kHalf = kTrailsPerRunMax / 2;
  EXPECT_EQ(kept.front(), 0u);
  EXPECT_EQ(kept[kHalf - 1], kHalf - 1);
  EXPECT_EQ(kept[kHalf], kAll - kHalf);
  EXPECT_EQ(kept.back(), kAll - 1);
  EXPECT_EQ(static_cast<uint64_t>(facts.records_size()), kAll + kTrailsPerRunMax);
  EXPECT_EQ(facts.state().records_thinned(), 0u) << "no finding is gone";
}

TEST_F(RetentionTest, StepsOfLongAgoAreKeptMoreCoarselyAndTheNewestAllOfThem) {
  constexpr uint64_t kAll = 4 * kStepsPerRunMax;
  for (uint64_t from = 0; from < kAll; from += 512) {
    RunBatch batch = BatchOf(1);
    for (uint64_t i = 0; i < 512; ++i) AddStep(batch, from + i);
    ASSERT_TRUE(store_.Commit({batch}, 1).ok());
  }
  const std::vector<StepSummary> steps = store_.Steps(RunId(1)).value();
  ASSERT_LE(steps.size(), kStepsPerRunMax);
  ASSERT_GT(steps.size(), kStepsPerRunMax / 4);
  EXPECT_EQ(steps.front().index(), 0u);
  EXPECT_EQ(steps.back().index(), kAll - 1);
  for (size_t i = steps.size() - 500; i < steps.size(); ++i) {
    ASSERT_EQ(steps[i].index(), kAll - steps.size() + i);
  }
}

TEST_F(RetentionTest, NoPeakOfAStepOfLongAgoIsLost) {
  constexpr uint64_t kAll = 10'000;
  constexpr uint64_t kRate = 4'321, kPeak = 777, kDip = 1'235, kNan = 2'001, kBad = 2'003;
  for (uint64_t from = 0; from < kAll; from += 500) {
    RunBatch batch = BatchOf(1);
    for (uint64_t i = from; i < from + 500; ++i) {
      AddStep(batch, i);
      StepSummary& step = batch.steps.back();
      step.set_loss(i == kPeak ? 1e6 : i == kNan ? NAN : 2 + 1e-5 * static_cast<double>(i % 10));
      step.set_gradient_norm(i == kDip ? 1e-6 : 1);
      step.set_learning_rate(i < kRate ? 0.1 : 0.01);
      if (i == kBad) step.set_gradients_bad(3);
      if (i > kBad) step.set_flags(4);
    }
    ASSERT_TRUE(store_.Commit({batch}, 1).ok());
  }
  std::map<uint64_t, StepSummary> kept;
  const std::vector<StepSummary> steps = store_.Steps(RunId(1)).value();
  for (const StepSummary& step : steps) kept[step.index()] = step;
  ASSERT_LE(kept.size(), kStepsPerRunMax);
  for (const uint64_t index : {kPeak, kDip, kNan, kBad, kBad + 1})
    EXPECT_TRUE(kept.contains(index)) << index;
  double mean = 0;
  for (const auto& [index, step] : kept) {
    if (index == kPeak || index == kNan) continue;
    mean += step.loss() / static_cast<double>(kept.size() - 2);
  }
  EXPECT_NEAR(mean, 2 + 4.5e-5, 1e-5) << "what stays is not only peaks";
}

TEST_F(RetentionTest, SnapshotsOfLongAgoAreKeptMoreCoarselyAndTheNewestAllOfThem) {
  for (uint64_t number = 0; number < 500; ++number) {
    RunBatch batch = BatchOf(1);
    AddSnapshot(batch, number);
    ASSERT_TRUE(store_.Commit({batch}, 1).ok());
    ASSERT_TRUE(store_.Commit({batch}, 1).ok()) << "twice is once";
  }
  RunBatch many = BatchOf(1);
  for (uint64_t number = 500; number < 600; ++number) AddSnapshot(many, number);
  ASSERT_TRUE(store_.Commit({many}, 1).ok());
  const std::vector<StatsSnapshot> kept = store_.Stats(RunId(1)).value();
  ASSERT_LE(kept.size(), kStatsPerRunMax);
  ASSERT_GT(kept.size(), kStatsPerRunMax / 3);
  EXPECT_EQ(kept.front().number(), 0u);
  for (size_t i = 0; i < kNewestStatsPerRun; ++i) {
    EXPECT_EQ(kept[kept.size() - 1 - i].number(), 599 - i);
  }
  EXPECT_EQ(store_.Facts(RunId(1)).value().stats_stored().number(), 599u);
}

TEST_F(RetentionTest, OldEndedRunsAreForgottenWithAllThatBelongsToThem) {
  for (uint64_t nonce = 1; nonce <= kRunsKept + 10; ++nonce) {
    RunBatch batch = BatchOf(nonce);
    AddRecord(batch, 1);
    AddSnapshot(batch, 1);
    batch.state.set_ended(nonce != 3);
    ASSERT_TRUE(store_.Commit({batch}, 1).ok());
  }
  ASSERT_TRUE(store_.ReplaceIncidents(RunId(1), std::vector<Incident>(1)).ok());
  ASSERT_TRUE(store_.ReplaceWarnings(RunId(1), std::vector<Warning>(1)).ok());
  ASSERT_TRUE(store_.Retire().ok());
  EXPECT_EQ(store_.FindRun(RunId(1)).status().kind(), ErrorKind::kNotFound);
  EXPECT_TRUE(store_.Incidents(RunId(1)).value().empty());
  EXPECT_TRUE(store_.Warnings(RunId(1)).value().empty());
  EXPECT_TRUE(store_.FindRun(RunId(3)).ok()) << "it lives";
  EXPECT_TRUE(store_.FindRun(RunId(12)).ok()) << "no more than had to go";
  EXPECT_FALSE(store_.CursorOf(RunId(1)).value().has_value());
}

TEST_F(RetentionTest, AnOldRunThatLivesKeepsNoNewerEndedOneInAFullDatabase) {
  ASSERT_TRUE(store_.LimitSize(400 << 10).ok());
  ASSERT_TRUE(store_.Commit({BatchOf(1)}, 1).ok());
  uint64_t ticket = 0;
  const auto commit = [&](uint64_t nonce) {
    RunBatch batch = BatchOf(nonce);
    for (int i = 0; i < 500; ++i) AddRecord(batch, ++ticket);
    batch.state.set_ended(true);
    return store_.Commit({batch}, nonce);
  };
  Status committed;
  for (int i = 0; i < 39 && committed.ok(); ++i) committed = commit(2);
  ASSERT_EQ(committed.kind(), ErrorKind::kFull);
  ASSERT_TRUE(store_.Retire().ok());
  EXPECT_TRUE(commit(3).ok());
  EXPECT_TRUE(store_.FindRun(RunId(1)).ok()) << "it lives";
}

TEST_F(RetentionTest, WhatARunSaysOfItsStartDecidesNothing) {
  for (uint64_t nonce = 1; nonce <= kRunsKept + 1; ++nonce) {
    RunBatch batch = BatchOf(nonce);
    // The oldest claims to come from the future, the newest from 1970.
    batch.run.set_started_real_ns(nonce == 1 ? ~uint64_t{0} >> 1 : nonce == kRunsKept + 1 ? 0 : 5);
    batch.state.set_ended(true);
    ASSERT_TRUE(store_.Commit({batch}, nonce).ok());
  }
  ASSERT_TRUE(store_.Retire().ok());
  EXPECT_EQ(store_.FindRun(RunId(1)).status().kind(), ErrorKind::kNotFound);
  EXPECT_TRUE(store_.FindRun(RunId(kRunsKept + 1)).ok());
}

TEST_F(RetentionTest, AJobIsJudgedByABoundedNumberOfRecords) {
  constexpr uint64_t kRuns = 8;
  for (uint64_t nonce = 1; nonce <= kRuns; ++nonce) {
    RunBatch batch = BatchOf(nonce, "j");
    for (uint64_t i = 1; i <= 10'000; ++i) AddRecord(batch, i);
    ASSERT_TRUE(store_.Commit({batch}, nonce).ok());
  }
  const std::vector<RunFacts> facts = store_.FactsOfJob("j").value();
  ASSERT_EQ(facts.size(), kRuns);
  for (const RunFacts& run : facts) {
    ASSERT_EQ(run.records_size(), 3'000);
    EXPECT_EQ(run.records(0).ticket(), 1u);
    EXPECT_EQ(run.records(2'399).ticket(), 2'400u);
    EXPECT_EQ(run.records(2'400).ticket(), 9'401u);
    EXPECT_EQ(run.records(2'999).ticket(), 10'000u);
    EXPECT_EQ(run.state().records_thinned(), 7'000u);
  }
  EXPECT_EQ(store_.Facts(RunId(1)).value().records_size(), 10'000) << "a run alone: all of them";
}

// A job of many processes most of which found nothing.
TEST_F(RetentionTest, RunsWithFewRecordsLeaveTheirShareToOthers) {
  RunBatch large = BatchOf(1, "j");
  for (uint64_t i = 1; i <= 10'000; ++i) AddRecord(large, i);
  ASSERT_TRUE(store_.Commit({large}, 1).ok());
  for (uint64_t nonce = 2; nonce <= 200; ++nonce) {
    RunBatch batch = BatchOf(nonce, "j");
    if (nonce == 2) AddRecord(batch, 1);
    ASSERT_TRUE(store_.Commit({batch}, nonce).ok());
  }
  const std::vector<RunFacts> facts = store_.FactsOfJob("j").value();
  ASSERT_EQ(facts.size(), 200u);
  EXPECT_EQ(facts[0].records_size(), 10'000);
  EXPECT_EQ(facts[0].state().records_thinned(), 0u);
  EXPECT_EQ(facts[1].records_size(), 1);
}

TEST_F(RetentionTest, ADatabaseThatFillsUpForgetsOldRunsToTakeNewOnes) {
  ASSERT_TRUE(store_.LimitSize(2 << 20).ok());
  uint64_t nonce = 0;
  Status committed;
  while (committed.ok() && nonce < 100) {
    RunBatch batch = BatchOf(++nonce);
    for (uint64_t i = 0; i < 2'000; ++i) AddRecord(batch, i);
    batch.state.set_ended(true);
    committed = store_.Commit({batch}, 1);
    if (committed.kind() != ErrorKind::kFull) continue;
    ASSERT_TRUE(store_.Retire().ok());
    committed = store_.Commit({batch}, 1);
  }
  EXPECT_TRUE(committed.ok()) << committed.message();
  EXPECT_TRUE(store_.FindRun(RunId(100)).ok());
}

}  // namespace
}  // namespace nanwatch
