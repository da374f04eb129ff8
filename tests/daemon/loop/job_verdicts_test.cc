// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/job_verdicts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <vector>

#include "daemon/ingest/run_batch.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/recording_listener.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

uint64_t ResidentBytes() {
  uint64_t all = 0;
  uint64_t resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

class JobVerdictsTest : public testing::Test {
 protected:
  JobVerdictsTest() : store_(*Store::OpenForWriting(directory_ / "nanwatch.db")) {}

  TemporaryDirectory directory_;
  FakeClock clock_;
  RecordingListener listener_;
  Store store_;
  int judged_ = 0;
  uint64_t cost_ms_ = 0;
  Verdict verdict_;
  JobVerdicts verdicts_{[this](const std::vector<RunFacts>&) {
                          ++judged_;
                          clock_.AdvanceMs(cost_ms_);
                          return verdict_;
                        },
                        clock_, listener_};
};

TEST_F(JobVerdictsTest, JudgesABurstOnce) {
  for (int i = 0; i < 9; ++i) {
    verdicts_.Touch("j");
    (void)verdicts_.Renew(store_, false);
    clock_.AdvanceMs(10);
  }
  EXPECT_EQ(judged_, 0);
  clock_.AdvanceMs(10);
  (void)verdicts_.Renew(store_, false);
  EXPECT_EQ(judged_, 1);
  EXPECT_FALSE(verdicts_.has_pending());
}

TEST_F(JobVerdictsTest, AJobThatIsCostlyToJudgeIsJudgedLessOften) {
  cost_ms_ = 500;
  for (int i = 0; i < 100; ++i) {
    verdicts_.Touch("j");
    clock_.AdvanceMs(100);
    (void)verdicts_.Renew(store_, false);
  }
  EXPECT_LE(judged_, 3) << "a tenth of ten seconds";
  EXPECT_GE(judged_, 2);
}

TEST_F(JobVerdictsTest, AJobThatTakesLongIsWaitedForByNobody) {
  std::promise<void> goes_on;
  std::shared_future<void> wait = goes_on.get_future().share();
  std::atomic<int> begun = 0;
  JobVerdicts verdicts(
      [&](const std::vector<RunFacts>&) {
        ++begun;
        wait.wait();
        return Verdict();
      },
      clock_, listener_, /*patience_ns=*/0);
  verdicts.Touch("large");
  clock_.AdvanceMs(200);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(verdicts.Renew(store_, false).ok());
  EXPECT_TRUE(verdicts.has_pending());
  EXPECT_LE(verdicts.next_due_ns(), clock_.monotonic_ns() + 25'000'000) << "it is asked for";
  verdicts.Touch("small");
  goes_on.set_value();
  EXPECT_TRUE(verdicts.Renew(store_, /*all=*/true).ok());
  EXPECT_EQ(begun, 2);
  EXPECT_FALSE(verdicts.has_pending());
}

// A verdict is kept that stands behind all that was read, as the store's own memory may.
TEST_F(JobVerdictsTest, MemoryThatALargeJobTookIsGivenBack) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "NOT TESTED: a sanitizer has an allocator of its own";
#endif
  RunBatch batch;
  batch.run_id = RunId(1);
  batch.run.set_job("large");
  for (uint64_t ticket = 1; ticket <= 20'000; ++ticket) {
    Record& record = batch.records.emplace_back();
    record.set_ticket(ticket);
    record.mutable_value()->add_outputs()->set_numel(8);
  }
  ASSERT_TRUE(store_.Commit({batch}, 1).ok());
  batch.records = {};
  malloc_trim(0);
  std::vector<std::string> behind;
  uint64_t in_use = 0;
  JobVerdicts verdicts(
      [&](const std::vector<RunFacts>&) {
        for (int i = 0; i < 100; ++i) behind.emplace_back(1'000, 'x');
        in_use = ResidentBytes();
        return Verdict();
      },
      clock_, listener_);
  const uint64_t before = ResidentBytes();
  verdicts.Touch("large");
  EXPECT_TRUE(verdicts.Renew(store_, /*all=*/true).ok());
  ASSERT_GT(in_use, before + (8u << 20));
  EXPECT_LT(ResidentBytes(), before + (in_use - before) / 2);
}

TEST_F(JobVerdictsTest, OfAStormOfPlacesTheMostImportantIncidentsAreKept) {
  for (int i = 0; i < 3'000; ++i) verdict_.add_incidents()->mutable_origin()->set_step(i);
  verdicts_.Touch("j");
  EXPECT_TRUE(verdicts_.Renew(store_, /*all=*/true).ok());
  const std::vector<Incident> kept = store_.Incidents("j").value();
  ASSERT_EQ(kept.size(), static_cast<size_t>(kIncidentsPerJobMax));
  EXPECT_EQ(kept.back().origin().step(), kIncidentsPerJobMax - 1);
}

TEST_F(JobVerdictsTest, AFailureIsSaidOnceAMinuteAndTriedAgain) {
  TemporaryDirectory elsewhere;
  Store store = *Store::OpenForWriting(elsewhere / "nanwatch.db");
  std::filesystem::remove(elsewhere / "nanwatch.db");
  int failures = 0;
  for (int i = 0; i < 100; ++i) {
    verdicts_.Touch("j");
    clock_.AdvanceMs(1'100);
    failures += verdicts_.Renew(store, false).ok() ? 0 : 1;
    EXPECT_TRUE(verdicts_.has_pending());
  }
  EXPECT_GE(failures, 5);
  EXPECT_LE(failures, 7) << "after 1, 2, 4 seconds and so on";
  EXPECT_EQ(listener_.troubles.size(), 2u);
  EXPECT_THAT(listener_.troubles[0], testing::HasSubstr("verdict of job j cannot be renewed"));
}

TEST_F(JobVerdictsTest, AJobThatIsCostlyAndFailsIsTriedLessOften) {
  cost_ms_ = 2'000;
  TemporaryDirectory elsewhere;
  Store read_only = *Store::OpenForWriting(elsewhere / "nanwatch.db");
  for (int i = 0; i < 3; ++i) verdict_.add_incidents();
  ASSERT_TRUE(read_only.LimitSize(1).ok());  // nothing can be kept any more
  std::string large(100'000, 'x');
  verdict_.mutable_incidents(0)->mutable_origin()->set_op(large);
  verdicts_.Touch("j");
  for (int i = 0; i < 100; ++i) {
    clock_.AdvanceMs(500);
    (void)verdicts_.Renew(read_only, false);
  }
  EXPECT_GE(judged_, 2);
  EXPECT_LE(judged_, 3) << "18 s after the first, 36 s after the second";
}

// The database could not be moved: what was due is due.
TEST_F(JobVerdictsTest, AJobThatWasJudgedWhenTheJudgeIsDrainedStaysDue) {
  std::promise<void> goes_on;
  std::shared_future<void> wait = goes_on.get_future().share();
  int judged = 0;
  JobVerdicts verdicts(
      [&](const std::vector<RunFacts>&) {
        wait.wait();
        ++judged;
        return Verdict();
      },
      clock_, listener_, /*patience_ns=*/0);
  verdicts.Touch("j");
  verdicts.Touch("k");
  clock_.AdvanceMs(200);
  ASSERT_TRUE(verdicts.Renew(store_, false).ok());
  goes_on.set_value();
  verdicts.DrainJudge();
  EXPECT_TRUE(verdicts.has_pending());
  EXPECT_TRUE(verdicts.Renew(store_, /*all=*/true).ok());
  EXPECT_EQ(judged, 3) << "the one that was drained, and both";
}

TEST_F(JobVerdictsTest, JudgesWhatIsPendingAtOnceWhenAsked) {
  verdicts_.Touch("j");
  (void)verdicts_.Renew(store_, /*all=*/true);
  EXPECT_EQ(judged_, 1);
}

// A warning that is joined by another of its family gets another id, and is not new by that.
TEST_F(JobVerdictsTest, TellsAWarningOnceAlsoAfterADaemonThatToldIt) {
  Warning& first = *verdict_.add_warnings();
  first.set_family("divergence");
  first.set_id("gradient-exploding");
  const auto renew = [&](JobVerdicts& verdicts) {
    verdicts.Touch("j");
    (void)verdicts.Renew(store_, /*all=*/true);
  };
  renew(verdicts_);
  renew(verdicts_);
  verdict_.mutable_warnings(0)->set_id("training-diverging");
  renew(verdicts_);
  EXPECT_THAT(listener_.warnings, testing::ElementsAre("gradient-exploding"));
  EXPECT_EQ(store_.Warnings("j").value()[0].id(), "training-diverging");

  JobVerdicts next([this](const std::vector<RunFacts>&) { return verdict_; }, clock_, listener_);
  renew(next);
  EXPECT_EQ(listener_.warnings.size(), 1u);
  Warning& second = *verdict_.add_warnings();
  second.set_family("divergence");
  second.set_id("loss-blowing-up");
  renew(next);
  EXPECT_THAT(listener_.warnings, testing::ElementsAre("gradient-exploding", "loss-blowing-up"));
}

}  // namespace
}  // namespace nanwatch
