#include "daemon/loop/job_verdicts.h"

#include <gtest/gtest.h>

#include "tests/fakes/fake_clock.h"
#include "tests/fakes/recording_observer.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

class JobVerdictsTest : public testing::Test {
 protected:
  JobVerdictsTest() : store_(*Store::OpenForWriting(directory_ / "nanwatch.db")) {}

  TemporaryDirectory directory_;
  FakeClock clock_;
  RecordingObserver observer_;
  Store store_;
  int judged_ = 0;
  uint64_t cost_ms_ = 0;
  JobVerdicts verdicts_{[this](const std::vector<RunFacts>&) {
                          ++judged_;
                          clock_.AdvanceMs(cost_ms_);
                          return Verdict();
                        },
                        clock_, observer_};
};

TEST_F(JobVerdictsTest, JudgesABurstOnce) {
  for (int i = 0; i < 9; ++i) {
    verdicts_.Touch("j");
    verdicts_.Renew(store_, false);
    clock_.AdvanceMs(10);
  }
  EXPECT_EQ(judged_, 0);
  clock_.AdvanceMs(10);
  verdicts_.Renew(store_, false);
  EXPECT_EQ(judged_, 1);
  EXPECT_FALSE(verdicts_.has_pending());
}

TEST_F(JobVerdictsTest, AJobThatIsCostlyToJudgeIsJudgedLessOften) {
  cost_ms_ = 500;
  for (int i = 0; i < 100; ++i) {
    verdicts_.Touch("j");
    clock_.AdvanceMs(100);
    verdicts_.Renew(store_, false);
  }
  EXPECT_LE(judged_, 3) << "a tenth of ten seconds";
  EXPECT_GE(judged_, 2);
}

TEST_F(JobVerdictsTest, JudgesWhatIsPendingAtOnceWhenAsked) {
  verdicts_.Touch("j");
  verdicts_.Renew(store_, /*all=*/true);
  EXPECT_EQ(judged_, 1);
}

}  // namespace
}  // namespace nanwatch
