// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/run_batch.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

Record WithTicket(uint64_t ticket) {
  Record record;
  record.set_ticket(ticket);
  return record;
}

TEST(RunBatchTest, ARunIsNamedByItsNonceInHexadecimal) {
  EXPECT_EQ(RunId(0xabc), "0000000000000abc");
  EXPECT_EQ(RunId(~uint64_t{0}), "ffffffffffffffff");
}

TEST(RunBatchTest, AProcessWithoutAJobIsAJobOfItsOwn) {
  nanwatch::Run run;
  run.set_nonce(0xabc);
  EXPECT_EQ(JobOf(run), "0000000000000abc");
  run.set_job("nightly");
  EXPECT_EQ(JobOf(run), "nightly");
}

TEST(RunBatchTest, MergingKeepsRecordsOnceAndInTheOrderOfTheirTickets) {
  RunFacts facts;
  RunBatch batch;
  batch.records = {WithTicket(5), WithTicket(2)};
  MergeInto(facts, batch);
  batch.records = {WithTicket(3), WithTicket(5)};
  MergeInto(facts, batch);
  ASSERT_EQ(facts.records_size(), 3);
  EXPECT_EQ(facts.records(0).ticket(), 2u);
  EXPECT_EQ(facts.records(1).ticket(), 3u);
  EXPECT_EQ(facts.records(2).ticket(), 5u);
}

TEST(RunBatchTest, MergingReplacesASiteByItsNewerCount) {
  RunFacts facts;
  RunBatch batch;
  batch.sites.resize(1);
  batch.sites[0].set_id(1);
  batch.sites[0].set_count(1);
  MergeInto(facts, batch);
  batch.sites[0].set_count(7);
  MergeInto(facts, batch);
  ASSERT_EQ(facts.sites_size(), 1);
  EXPECT_EQ(facts.sites(0).count(), 7u);
}

}  // namespace
}  // namespace nanwatch
