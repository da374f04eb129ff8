// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/store/batch_builder.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class StoreTest : public testing::Test {
 protected:
  StoreTest() : store_(OpenWriter()) {}
  Store OpenWriter() {
    Result<Store> store = Store::OpenForWriting(directory_ / "nanwatch.db");
    EXPECT_TRUE(store.ok()) << store.status().message();
    return *std::move(store);
  }
  void Commit(const RunBatch& batch) {
    const Status committed = store_.Commit({batch}, 1);
    ASSERT_TRUE(committed.ok()) << committed.message();
  }
  RunFacts FactsOf(const std::string& run) {
    Result<RunFacts> facts = store_.Facts(run);
    EXPECT_TRUE(facts.ok()) << facts.status().message();
    return facts.ok() ? *facts : RunFacts();
  }

  TemporaryDirectory directory_;
  Store store_;
};

TEST_F(StoreTest, GivesBackWhatWasCommitted) {
  RunBatch batch = BatchOf(0xabc, "nightly");
  AddRecord(batch, 7);
  AddRecord(batch, 3);
  AddSite(batch, 1, 2);
  AddStep(batch, 0);
  batch.reach.emplace_back().set_reach(2);
  batch.state.set_ops_seen(99);
  batch.cursor = {.ring = 12, .steps = 1, .holes = 2, .malformed = 3, .steps_lost = 4};
  Commit(batch);
  const RunFacts facts = FactsOf(batch.run_id);
  EXPECT_EQ(facts.run().job(), "nightly");
  EXPECT_EQ(facts.state().ops_seen(), 99u);
  ASSERT_EQ(facts.records_size(), 2);
  EXPECT_EQ(facts.records(0).ticket(), 3u) << "in the order of tickets";
  EXPECT_EQ(facts.sites_size(), 1);
  EXPECT_EQ(facts.reach_size(), 1);
  EXPECT_EQ(facts.steps(), 1u);
  EXPECT_EQ(store_.CursorOf(batch.run_id).value(), batch.cursor);
}

TEST_F(StoreTest, WritesNothingTwiceWhenABatchIsCommittedAgain) {
  RunBatch batch = BatchOf(1);
  AddRecord(batch, 7);
  AddSite(batch, 1, 2);
  AddStep(batch, 0);
  Commit(batch);
  batch.sites[0].set_count(5);
  Commit(batch);
  const RunFacts facts = FactsOf(batch.run_id);
  EXPECT_EQ(facts.records_size(), 1);
  EXPECT_EQ(facts.steps(), 1u);
  ASSERT_EQ(facts.sites_size(), 1);
  EXPECT_EQ(facts.sites(0).count(), 5u);
}

TEST_F(StoreTest, TicketsAreDistinctWithinARunNotAmongRuns) {
  RunBatch one = BatchOf(1, "j");
  RunBatch two = BatchOf(2, "j");
  AddRecord(one, 7);
  AddRecord(two, 7);
  ASSERT_TRUE(store_.Commit({one, two}, 1).ok());
  EXPECT_EQ(FactsOf(one.run_id).records_size(), 1);
  EXPECT_EQ(FactsOf(two.run_id).records_size(), 1);
  EXPECT_THAT(store_.RunsOfJob("j").value(), ElementsAre(one.run_id, two.run_id));
  EXPECT_EQ(store_.FactsOfJob("j").value().size(), 2u);
}

TEST_F(StoreTest, AToolReadsWhileTheDaemonWrites) {
  Commit(BatchOf(1));
  Result<Store> reader = Store::OpenForReading(directory_ / "nanwatch.db");
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  const int64_t before = reader->ChangeCounter().value();
  Commit(BatchOf(2));
  EXPECT_NE(reader->ChangeCounter().value(), before);
  EXPECT_EQ(reader->Runs({}).value().size(), 2u);
}

TEST_F(StoreTest, ListsRunsNewestFirstAndOnlyTheLivingIfAsked) {
  RunBatch ended = BatchOf(1);
  ended.state.set_ended(true);
  Commit(ended);
  Commit(BatchOf(2));
  Commit(BatchOf(3));
  const std::vector<RunRow> all = store_.Runs({}).value();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].id, RunId(3));
  EXPECT_EQ(store_.Runs({.job = {}, .live_only = true}).value().size(), 2u);
  EXPECT_EQ(store_.Runs({.job = RunId(2)}).value().size(), 1u)
      << "a run without a job is its own job";
}

TEST_F(StoreTest, FindsARunByTheBeginningOfItsId) {
  Commit(BatchOf(0x7f3a000000000001));
  Commit(BatchOf(0x7f3b000000000001));
  EXPECT_EQ(store_.ResolveRun("7f3a").value(), "7f3a000000000001");
  EXPECT_EQ(store_.ResolveRun("7f3").status().kind(), ErrorKind::kAmbiguous);
  EXPECT_THAT(store_.ResolveRun("7f3").status().message(), HasSubstr("7f3b000000000001"));
  EXPECT_EQ(store_.ResolveRun("00").status().kind(), ErrorKind::kNotFound);
  EXPECT_EQ(store_.ResolveRun("train").status().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(store_.ResolveRun("").status().kind(), ErrorKind::kInvalid);
}

TEST_F(StoreTest, AnExitThatComesAfterItsRunIsAddedToIt) {
  Commit(BatchOf(42, "j"));
  ASSERT_TRUE(store_.RecordExit({.job = "j", .pid = 42, .exit_code = 3, .signal = {}}).ok());
  EXPECT_EQ(FactsOf(RunId(42)).state().exit_code(), 3);
}

TEST_F(StoreTest, AnExitThatComesBeforeItsRunIsAddedWhenTheRunAppears) {
  ASSERT_TRUE(store_.RecordExit({.job = "j", .pid = 42, .exit_code = {}, .signal = 9}).ok());
  Commit(BatchOf(42, "j"));
  EXPECT_EQ(FactsOf(RunId(42)).state().signal(), 9);
  Commit(BatchOf(43, "j"));
  EXPECT_FALSE(FactsOf(RunId(43)).state().has_signal()) << "another process of the job";
}

TEST_F(StoreTest, AnExitWithoutARunIsKeptForTheJob) {
  EXPECT_FALSE(store_.ExitOfJob("j").value().has_value());
  ASSERT_TRUE(store_.RecordExit({.job = "j", .pid = 1, .exit_code = 127, .signal = {}}).ok());
  EXPECT_EQ(store_.ExitOfJob("j").value()->exit_code, 127);
}

TEST_F(StoreTest, IncidentsOfAJobAreReplacedAsASet) {
  std::vector<Incident> incidents(2);
  incidents[0].mutable_origin()->set_op("aten::log");
  incidents[1].mutable_origin()->set_op("aten::exp");
  ASSERT_TRUE(store_.ReplaceIncidents("j", incidents).ok());
  ASSERT_TRUE(store_.ReplaceIncidents("other", incidents).ok());
  incidents.pop_back();
  ASSERT_TRUE(store_.ReplaceIncidents("j", incidents).ok());
  ASSERT_EQ(store_.Incidents("j").value().size(), 1u);
  EXPECT_EQ(store_.Incidents("j").value()[0].origin().op(), "aten::log");
  EXPECT_EQ(store_.Incidents("other").value().size(), 2u);
}

TEST_F(StoreTest, AJobsRowsAreGoneWithoutATraceWhenTheCommitFails) {
  Commit(BatchOf(1));
  ASSERT_TRUE(store_.LimitSize(1).ok());
  RunBatch large = BatchOf(2);
  for (uint64_t i = 0; i < 5'000; ++i) AddRecord(large, i);
  EXPECT_EQ(store_.Commit({large}, 1).kind(), ErrorKind::kFull);
  EXPECT_EQ(store_.FindRun(large.run_id).status().kind(), ErrorKind::kNotFound);
  ASSERT_TRUE(store_.LimitSize(kDatabaseBytesMax).ok());
  Commit(large);
  EXPECT_EQ(FactsOf(large.run_id).records_size(), 5'000);
}

TEST_F(StoreTest, EndsARunThatNobodySpeaksForAnyMore) {
  Commit(BatchOf(1));
  ASSERT_TRUE(store_.EndRun(RunId(1), 77).ok());
  EXPECT_TRUE(FactsOf(RunId(1)).state().ended());
  EXPECT_EQ(FactsOf(RunId(1)).state().ended_real_ns(), 77u);
  EXPECT_TRUE(store_.Runs({.job = {}, .live_only = true}).value().empty());
}

}  // namespace
}  // namespace nanwatch
