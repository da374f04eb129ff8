// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/run_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/correlate/run_builder.h"
#include "tests/fakes/segment_builder.h"
#include "tests/tools/temporary_directory.h"

namespace nanwatch {
namespace {

using ::testing::SizeIs;

class RunTableTest : public ::testing::Test {
 protected:
  RunTableTest() {
    places_.segment_dir = directory_.path();
    places_.state_dir = directory_.path();
    places_.database = directory_.Path("nanwatch.db");
  }

  TemporaryDirectory directory_;
  Places places_;
};

TEST_F(RunTableTest, HasARunThatEndedBeforeADaemonReadIt) {
  IdleProcess process;
  SegmentBuilder job(directory_.path(), {.nonce = 0x1, .job = "j", .pid = process.pid()});
  job.Publish();
  Observations observations(places_);
  RunTable table(observations);
  table.Refresh();
  ASSERT_THAT(table.runs(), SizeIs(1));
  EXPECT_TRUE(table.runs()[0].live);
  process.Kill();
  table.Refresh();
  ASSERT_THAT(table.runs(), SizeIs(1));
  EXPECT_FALSE(table.runs()[0].live);
  EXPECT_EQ(table.runs()[0].job, "j");
  EXPECT_EQ(table.jobs().count("j"), 1u);
}

TEST_F(RunTableTest, HasARunOnceOfWhichTheDatabaseAndASegmentTell) {
  IdleProcess process;
  SegmentBuilder job(directory_.path(), {.nonce = 0x1, .job = "j", .pid = process.pid()});
  job.Publish();
  process.Kill();
  Observations observations(places_);
  RunBatch batch;
  batch.run = observations.Runs()[0].run;
  batch.run_id = observations.Runs()[0].id;
  batch.state.set_ended(true);
  batch.state.set_exit_code(3);
  Result<Store> store = Store::OpenForWriting(places_.database);
  ASSERT_TRUE(store.ok()) << store.status().message();
  ASSERT_TRUE(store->Commit({batch}, 1).ok());
  RunTable table(observations);
  table.Refresh();
  ASSERT_THAT(table.runs(), SizeIs(1));
  EXPECT_EQ(table.runs()[0].state_text, "ended, 3");
}

}  // namespace
}  // namespace nanwatch
