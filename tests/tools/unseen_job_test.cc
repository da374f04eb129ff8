// SPDX-License-Identifier: Apache-2.0
// Verdicts of jobs in which nothing was observed, kept for `report`.
#include "tools/unseen_job.h"

#include <gtest/gtest.h>

#include "tests/tools/temporary_directory.h"

namespace nanwatch {
namespace {

class UnseenJobTest : public testing::Test {
 protected:
  UnseenJobTest() { places_.state_dir = directory_.Path("state"); }
  void Keep(const std::string& job, uint64_t started, int pid = 7) {
    Verdict verdict;
    verdict.set_verdict("unknown");
    verdict.mutable_run()->set_job(job);
    verdict.mutable_run()->set_pid(pid);
    KeepUnseen(places_, started, verdict);
  }
  TemporaryDirectory directory_;
  Places places_;
};

TEST_F(UnseenJobTest, AreFoundByNameAndPidTheNewestFirst) {
  Keep("first", 10);
  Keep("second-1", 9'000'000'000, 4711);
  ASSERT_EQ(UnseenJobs(places_).size(), 2u);
  EXPECT_EQ(FindUnseen(places_, "")->job, "second-1");
  EXPECT_EQ(FindUnseen(places_, "fi")->started_real_ns, 10u);
  EXPECT_EQ(FindUnseen(places_, "4711")->job, "second-1");
  EXPECT_FALSE(FindUnseen(places_, "third"));
  EXPECT_EQ(ReadUnseen(*FindUnseen(places_, "first"))->verdict(), "unknown");
}

TEST_F(UnseenJobTest, OneIsKeptOfEachJob) {
  Keep("night", 10);
  Keep("night", 20);
  ASSERT_EQ(UnseenJobs(places_).size(), 1u);
  EXPECT_EQ(UnseenJobs(places_)[0].started_real_ns, 20u);
}

TEST_F(UnseenJobTest, TheOldestGiveWay) {
  for (uint64_t i = 1; i <= kUnseenMax + 3; ++i) Keep("job-" + std::to_string(i), i);
  ASSERT_EQ(UnseenJobs(places_).size(), kUnseenMax);
  EXPECT_EQ(UnseenJobs(places_).back().job, "job-4");
}

TEST_F(UnseenJobTest, OtherFilesAndDamagedOnesAreNoVerdicts) {
  Keep("good", 5);
  directory_.Write("state/unseen-12-x", "");
  directory_.Write("state/unseen-0000000000000000000x-bad", "");
  directory_.Write("state/unseen-00000000000000000009-bad", "\xff\xff\xff");
  ASSERT_EQ(UnseenJobs(places_).size(), 2u);
  EXPECT_FALSE(ReadUnseen(UnseenJobs(places_)[0]));
  EXPECT_TRUE(ReadUnseen(UnseenJobs(places_)[1]));
}

TEST_F(UnseenJobTest, WithoutAPlaceNothingIsKept) {
  places_.state_dir = "";
  Keep("job", 1);
  EXPECT_TRUE(UnseenJobs(places_).empty());
  places_.state_dir = directory_.Write("file", "") + "/state";
  Keep("job", 1);
  EXPECT_TRUE(UnseenJobs(places_).empty());
}

}  // namespace
}  // namespace nanwatch
