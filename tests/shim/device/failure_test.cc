// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/shim/device/checker_fixture.h"

namespace nanwatch::device {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Outcome = Finished::Outcome;

class Failing : public CheckerTest {};

TEST_F(Failing, DriverThatEndsWithTheProcessIsNoReasonToTell) {
  MakeReady(0);
  fake_cuda_lose_context(0, kCuDeinitialized);
  EXPECT_NE(Check(fake_cuda_new_stream(0), {Clean()}).skip, Skip::kNone);
  EXPECT_FALSE(checker_->Ready(0));
  EXPECT_STREQ(checker_->Reason(0), "");
}

TEST_F(Failing, ContextStepsTheDeviceDownForGoodAndLeavesTheOtherAlone) {
  MakeReady(0);
  MakeReady(1);
  void* streams[] = {fake_cuda_new_stream(0), fake_cuda_new_stream(1)};
  fake_cuda_lose_context(0, kCuIllegalAddress);
  EXPECT_NE(Check(streams[0], {Clean()}).skip, Skip::kNone);
  EXPECT_THAT(checker_->Reason(0), HasSubstr("CUDA error 700"));
  EXPECT_THAT(checker_->Reason(0), HasSubstr("context is lost"));
  EXPECT_FALSE(checker_->Ready(0));
  const size_t before = fake_cuda_log_size();
  EXPECT_EQ(Check(streams[0], {Clean()}).skip, Skip::kSteppedDown);
  EXPECT_EQ(checker_->AddStep(0, static_cast<CuStream>(streams[0])), Skip::kSteppedDown);
  EXPECT_EQ(checker_->Flush(0, static_cast<CuStream>(streams[0])), Skip::kSteppedDown);
  EXPECT_EQ(fake_cuda_log_size(), before);
  CheckOne(streams[1], Clean(), 1);
}

TEST_F(Failing, ContextStillTellsWhatWasFoundBeforeAndWhatWasLost) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  const uint64_t clean = CheckOne(stream, Clean());
  const uint64_t bad = CheckOne(stream, Bad());
  const uint64_t never_run = CheckOne(stream, Bad());
  fake_cuda_run(stream, 2);
  fake_cuda_lose_context(0, kCuAssert);
  EXPECT_THAT(Poll(), IsEmpty());  // nobody has noticed
  EXPECT_NE(Check(stream, {Clean()}).skip, Skip::kNone);
  const std::vector<Told> told = Poll();
  ASSERT_THAT(TicketsOf(told), ElementsAre(clean, bad, never_run));
  EXPECT_EQ(told[0].outcome, Outcome::kLost);  // nothing says that it was done
  EXPECT_EQ(told[1].outcome, Outcome::kBad);
  EXPECT_EQ(told[1].result.outputs[0].nan, 1u);
  EXPECT_EQ(told[2].outcome, Outcome::kLost);
  EXPECT_THAT(Poll(), IsEmpty());
}

// As where registering is refused: the results lie in memory that goes with the context.
TEST_F(Failing, DeviceThatIsResetIsNotReadAnyMore) {
  options_.memory_for = nullptr;
  MakeReady();
  const uint64_t bad = CheckOne(nullptr, Bad());
  fake_cuda_run(nullptr, SIZE_MAX);
  fake_cuda_reset_device(0);
  const std::vector<Told> told = Poll();
  ASSERT_THAT(TicketsOf(told), ElementsAre(bad));
  EXPECT_EQ(told[0].outcome, Outcome::kLost);
  EXPECT_THAT(checker_->Reason(0), HasSubstr("was reset"));
  EXPECT_EQ(Check(nullptr, {Clean()}).skip, Skip::kSteppedDown);
  EXPECT_THAT(Poll(), IsEmpty());
}

TEST_F(Failing, GraphsOfADeviceThatIsResetAreNotReadAnyMore) {
  options_.memory_for = nullptr;
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_begin_capture(stream, 0);
  const Enqueued captured = Check(stream, {Bad()});
  ASSERT_EQ(captured.skip, Skip::kNone);
  fake_cuda_replay(fake_cuda_end_capture(stream), stream);
  fake_cuda_run(stream, SIZE_MAX);
  fake_cuda_reset_device(0);
  EXPECT_THAT(Poll(), IsEmpty());
  CheckResult result;
  EXPECT_EQ(checker_->FoundIn(0, captured.captured_slot, 0, 1, &result), Found::kNothing);
  checker_->Forget(0, captured.captured_slot);
}

TEST_F(Failing, DeviceThatIsResetStepsDownAtTheNextLaunch) {
  MakeReady();
  fake_cuda_reset_device(0);
  EXPECT_NE(Check(nullptr, {Clean()}).skip, Skip::kNone);
  EXPECT_THAT(checker_->Reason(0), HasSubstr("CUDA error 709"));
}

TEST_F(Failing, EightTimesInARowStepsTheDeviceDown) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_fail("cuLaunchKernel", 1, 7, kCuInvalidHandle);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(Check(stream, {Clean()}).skip, Skip::kDriverError);
  CheckOne(stream, Clean());  // and the count begins anew
  fake_cuda_fail("cuLaunchKernel", 1, 8, kCuInvalidHandle);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(checker_->Reason(0), nullptr) << i;
    EXPECT_EQ(Check(stream, {Clean()}).skip, Skip::kDriverError);
  }
  EXPECT_THAT(checker_->Reason(0), HasSubstr("too many calls failed"));
  EXPECT_EQ(Failures(Failure::kOther), 15u);
}

// Nobody asks its streams any more how far they are.
TEST_F(Failing, TooOftenTellsWhatIsUnderWayAsLostAfterAWhile) {
  for (const bool at_once : {false, true}) {
    if (at_once) options_.down_after_ns = 0;
    checker_ = nullptr;
    MakeReady();
    void* stream = fake_cuda_new_stream(0);
    const uint64_t clean = CheckOne(stream, Clean());
    const uint64_t bad = CheckOne(stream, Bad());
    const uint64_t late = CheckOne(stream, Bad());
    fake_cuda_run(stream, 2);
    fake_cuda_fail("cuLaunchKernel", 1, 8, kCuInvalidHandle);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(Check(stream, {Clean()}).skip, Skip::kDriverError);
    ASSERT_THAT(checker_->Reason(0), HasSubstr("too many calls failed"));
    const std::vector<Told> told = Poll();
    if (!at_once) {
      EXPECT_THAT(told, IsEmpty());
      fake_cuda_run_all();
      continue;
    }
    ASSERT_THAT(TicketsOf(told), ElementsAre(clean, bad, late));
    EXPECT_EQ(told[0].outcome, Outcome::kLost);  // nothing says that it was done
    EXPECT_EQ(told[1].outcome, Outcome::kBad);
    EXPECT_EQ(told[1].result.outputs[0].nan, 1u);
    EXPECT_EQ(told[2].outcome, Outcome::kLost);
    fake_cuda_run_all();
    EXPECT_THAT(Poll(), IsEmpty());
  }
}

TEST_F(Failing, LaunchGivesItsSlotBack) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  for (int round = 0; round < 100; ++round) {
    fake_cuda_fail("cuLaunchKernel", 1, 1, kCuOutOfMemory);
    EXPECT_EQ(Check(stream, {Clean()}).skip, Skip::kDriverError);
    CheckOne(stream, Clean());
    fake_cuda_run_all();
    Poll();
  }
  EXPECT_EQ(Skips(Skip::kDriverError), 100u);
  EXPECT_EQ(Failures(Failure::kOutOfMemory), 100u);
}

TEST_F(Failing, PartOfAnOpSaysHowManyLaunchesWereMade) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_fail("cuLaunchKernel", 2, 1, kCuOutOfMemory);
  const Enqueued enqueued = Check(stream, std::vector<DeviceTensor>(20, Bad()));
  EXPECT_EQ(enqueued.skip, Skip::kDriverError);
  EXPECT_EQ(enqueued.launches, 1u);
  EXPECT_THAT(TicketsOf(RunAndPoll({stream})), ElementsAre(enqueued.first_ticket));
}

// A thread that captures may make every call of ours fail for a while; that is no fault of the
// device.
TEST_F(Failing, BecauseOfACaptureIsNotHeldAgainstTheDevice) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_fail("cuLaunchKernel", 1, 30, kCuStreamCaptureInvalidated);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(Check(stream, {Clean()}).skip, Skip::kDriverError);
  EXPECT_EQ(checker_->Reason(0), nullptr);
  CheckOne(stream, Clean());
}

TEST_F(Failing, LeavesNothingBehindThatTheJobCouldNotice) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  int ran = 0;
  const auto job_launches = [&] {
    return fake_cuda_launch_host(
        stream, [](void* count) { ++*static_cast<int*>(count); }, &ran);
  };
  for (const char* function : {"cuCtxGetCurrent", "cuStreamIsCapturing", "cuLaunchKernel"}) {
    fake_cuda_fail(function, 1, 1, kCuInvalidValue);
    EXPECT_NE(Check(stream, {Clean()}).skip, Skip::kNone);
    EXPECT_EQ(job_launches(), kCuSuccess);
    EXPECT_EQ(fake_cuda_current_device(), 0);
    EXPECT_EQ(fake_cuda_context_depth(), 1);
  }
  fake_cuda_run_all();
  EXPECT_EQ(ran, 3);
}

TEST_F(Failing, PushOfAContextMakesNoLaunch) {
  MakeReady(0);
  MakeReady(1);
  const size_t launches = fake_cuda_calls("cuLaunchKernel");
  fake_cuda_fail("cuCtxPushCurrent_v2", 1, 1, kCuInvalidContext);
  EXPECT_EQ(Check(fake_cuda_new_stream(1), {Clean()}, {}, 1).skip, Skip::kDriverError);
  EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), launches);
  EXPECT_EQ(fake_cuda_context_depth(), 1);
}

TEST_F(Failing, ToNumberAStreamFallsBackToItsHandle) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_fail("cuStreamGetId", 1, 1000, kCuNotSupported);
  for (int i = 0; i < 8; ++i) CheckOne(stream, Bad());
  fake_cuda_run_all();
  EXPECT_EQ(Poll().size(), 8u);
}

}  // namespace
}  // namespace nanwatch::device
