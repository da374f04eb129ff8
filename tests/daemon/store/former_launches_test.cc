// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/former_launches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/store/store.h"
#include "tests/daemon/store/batch_builder.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kDay = 24 * 3600 * kSecond;
constexpr uint64_t kOctober3 = uint64_t{1'790'985'600} * kSecond;  // 2026-10-03, 00:00 UTC

class FormerLaunchesTest : public testing::Test {
 protected:
  FormerLaunchesTest() : store_(*Store::OpenForWriting(directory_ / "nanwatch.db")) {}

  // A run of the job that ran for an hour. Returns its id.
  std::string Ran(uint64_t nonce, const std::string& job, uint64_t began, bool ended = true) {
    RunBatch batch = BatchOf(nonce, job);
    batch.run.set_started_real_ns(began);
    batch.state.set_ended(ended);
    if (ended) batch.state.set_ended_real_ns(began + 3600 * kSecond);
    EXPECT_TRUE(store_.Commit({batch}, began + 3600 * kSecond).ok());
    return batch.run_id;
  }
  std::vector<std::string> RunsOf(const std::string& job) { return *store_.RunsOfJob(job); }

  TemporaryDirectory directory_;
  Store store_;
};

TEST_F(FormerLaunchesTest, RunsOfAFormerMonthAreAnotherJob) {
  const std::string old = Ran(1, "4711.0", kOctober3);
  Incident incident;
  incident.mutable_origin()->set_run(old);
  ASSERT_TRUE(store_.ReplaceIncidents("4711.0", {incident}).ok());
  ASSERT_TRUE(
      store_
          .RecordExit({.job = "4711.0", .pid = 1, .exit_code = 1, .signal = {}, .ended_real_ns = 7})
          .ok());

  const std::string first = Ran(2, "4711.0", kOctober3 + 40 * kDay);
  const std::string second = Ran(3, "4711.0", kOctober3 + 40 * kDay + kSecond);
  EXPECT_THAT(RunsOf("4711.0"), ElementsAre(first, second));
  EXPECT_THAT(*store_.Incidents("4711.0"), IsEmpty());
  EXPECT_EQ(*store_.ExitOfJob("4711.0"), std::nullopt);

  const std::string name = "4711.0@2026-10-03";
  EXPECT_THAT(RunsOf(name), ElementsAre(old));
  EXPECT_EQ(store_.Incidents(name)->size(), 1u);
  EXPECT_EQ((*store_.ExitOfJob(name))->exit_code, 1);
  EXPECT_EQ(store_.Facts(old)->run().job(), name) << "the report names it so, too";
}

TEST_F(FormerLaunchesTest, AJobThatWasRequeuedStaysOneJob) {
  const std::string before = Ran(1, "4711.0", kOctober3);
  const std::string after = Ran(2, "4711.0", kOctober3 + 6 * kDay);
  EXPECT_THAT(RunsOf("4711.0"), ElementsAre(before, after));
}

// A long attempt, and the next one on its heels.
TEST_F(FormerLaunchesTest, TheEndOfARunCountsAndNotItsBeginning) {
  RunBatch batch = BatchOf(1, "4711.0");
  batch.run.set_started_real_ns(kOctober3);
  batch.state.set_ended(true);
  batch.state.set_ended_real_ns(kOctober3 + 30 * kDay);
  ASSERT_TRUE(store_.Commit({batch}, 1).ok());
  const std::string next = Ran(2, "4711.0", kOctober3 + 31 * kDay);
  EXPECT_THAT(RunsOf("4711.0"), ElementsAre(batch.run_id, next));
}

TEST_F(FormerLaunchesTest, ARunThatStillLivesIsNotSetAside) {
  const std::string live = Ran(1, "4711.0", kOctober3, /*ended=*/false);
  const std::string other = Ran(2, "4711.0", kOctober3 + 40 * kDay);
  EXPECT_THAT(RunsOf("4711.0"), ElementsAre(live, other));
}

TEST_F(FormerLaunchesTest, ANameThatAUserChoseJoinsWhateverCarriesIt) {
  for (const char* job : {"llama-7b", "100-3f9c01d2", "4711"}) {
    const std::string one = Ran(std::hash<std::string>()(job), job, kOctober3);
    const std::string two = Ran(std::hash<std::string>()(job) + 1, job, kOctober3 + 40 * kDay);
    EXPECT_THAT(RunsOf(job), ElementsAre(one, two)) << job;
  }
}

TEST(RepeatingJob, IsAStepOfSlurm) {
  for (const char* job : {"4711.0", "1.12", "4711.0-2"}) EXPECT_TRUE(IsRepeatingJob(job)) << job;
  for (const char* job : {"", "4711", "4711.", ".0", "4711.0-", "4711.0-x", "4711.0@2026-10-03",
                          "100-3f9c01d2", "v1.0", "1.0rc1"}) {
    EXPECT_FALSE(IsRepeatingJob(job)) << job;
  }
}

}  // namespace
}  // namespace nanwatch
