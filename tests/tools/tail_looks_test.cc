// SPDX-License-Identifier: Apache-2.0
// What `tail` gives at each look, while the database comes and goes.
#include "tools/tail_looks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "daemon/ingest/run_batch.h"
#include "daemon/store/store.h"
#include "tests/daemon/correlate/run_builder.h"
#include "tests/fakes/segment_builder.h"
#include "tests/tools/temporary_directory.h"

namespace nanwatch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class TailLooksTest : public ::testing::Test {
 protected:
  TailLooksTest() {
    places_.segment_dir = directory_.path();
    places_.state_dir = directory_.path();
    places_.database = directory_.Path("nanwatch.db");
  }

  // What the daemon keeps of the run of that nonce: that `op` made a NaN.
  void Keep(uint64_t nonce, const std::string& job, const std::string& op,
            uint64_t ticket = 1) const {
    RunBuilder builder;
    builder.Value(ticket).Produce(op).At("valves.main").Step(5).Nan(4, 8);
    const RunFacts facts = builder.Build();
    RunBatch batch;
    batch.run = facts.run();
    batch.run.set_nonce(nonce);
    batch.run.set_job(job);
    batch.run_id = RunId(batch.run);
    batch.state = facts.state();
    batch.state.set_ended(true);
    batch.sites.assign(facts.sites().begin(), facts.sites().end());
    batch.records.assign(facts.records().begin(), facts.records().end());
    Result<Store> store = Store::OpenForWriting(places_.database);
    ASSERT_TRUE(store.ok()) << store.status().message();
    ASSERT_TRUE(store->Commit({batch}, 1).ok());
  }

  void Spoil() {
    std::filesystem::rename(places_.database, directory_.Path("kept.db"));
    directory_.Write("nanwatch.db", std::string(8192, 'x'));
  }
  void Mend() { std::filesystem::rename(directory_.Path("kept.db"), places_.database); }

  TemporaryDirectory directory_;
  Places places_;
};

TEST_F(TailLooksTest, AJobIsNotSettledWhileTheDatabaseCannotBeRead) {
  Keep(0x1111, "a", "aten::sqrt");
  Spoil();
  Observations observations(places_);
  HostSource source(observations);
  TailLooks looks(source, 20, /*json=*/false);
  EXPECT_THAT(looks.Next({"a"}, {"a"}), IsEmpty());
  EXPECT_FALSE(looks.missing().ok());
  Mend();
  const std::string lines = looks.Next({"a"}, {"a"});
  EXPECT_TRUE(looks.missing().ok()) << looks.missing().message();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2) << "a finding, an incident: " << lines;
  EXPECT_THAT(lines, HasSubstr("aten::sqrt"));
  EXPECT_THAT(looks.Next({"a"}, {"a"}), IsEmpty());
}

TEST_F(TailLooksTest, WhatASegmentHasIsGivenAnywayAndConcludedLater) {
  Keep(0x1111, "a", "aten::sqrt");
  SegmentBuilder job(places_.segment_dir, {.nonce = 0x2222, .job = "a", .dead = true});
  job.WriteValue("aten::log", "a");
  job.Publish();
  Spoil();
  Observations observations(places_);
  HostSource source(observations);
  TailLooks looks(source, 20, /*json=*/false);
  const std::string first = looks.Next({"a"}, {"a"});
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), 1) << "and no incident: " << first;
  EXPECT_THAT(first, HasSubstr("aten::log"));
  EXPECT_THAT(looks.Next({"a"}, {"a"}), IsEmpty()) << "not twice";
  Mend();
  EXPECT_THAT(looks.Next({"a"}, {"a"}), AllOf(HasSubstr("aten::sqrt"), Not(HasSubstr(first))));
}

TEST_F(TailLooksTest, EarlierFindingsOfTheDatabaseComeEvenAfterLaterOnes) {
  Keep(0x1111, "a", "aten::sqrt", 2);
  SegmentBuilder job(places_.segment_dir, {.nonce = 0x1111, .job = "a", .dead = true});
  job.WriteValue("aten::sqrt", "a");  // kept among the first findings
  job.WriteValue("aten::sqrt", "a");
  job.ring().released_slots.store(job.ring().reserved_slots.load());  // as the daemon does
  ASSERT_EQ(job.WriteValue("aten::log", "a"), 3u);
  job.Publish();
  Spoil();
  Observations observations(places_);
  HostSource source(observations);
  TailLooks looks(source, 20, /*json=*/false);
  EXPECT_THAT(looks.Next({"a"}, {}), HasSubstr("aten::log"));
  Mend();
  EXPECT_THAT(looks.Next({"a"}, {}), AllOf(HasSubstr("aten::sqrt"), Not(HasSubstr("aten::log"))));
  EXPECT_THAT(looks.Next({"a"}, {}), IsEmpty());
}

}  // namespace
}  // namespace nanwatch
