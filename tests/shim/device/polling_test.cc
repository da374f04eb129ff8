// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <functional>
#include <latch>
#include <thread>
#include <utility>

#include "proto/wire/record.h"
#include "tests/shim/device/checker_fixture.h"

namespace nanwatch::device {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using Outcome = Finished::Outcome;

class Polling : public CheckerTest {
 protected:
  // As another thread may, at just that moment.
  void InsideTheNextLaunch(std::function<void()> function) {
    inside_ = std::move(function);
    fake_cuda_before_next_launch(
        [](void* inside) { (*static_cast<std::function<void()>*>(inside))(); }, &inside_);
  }

  std::function<void()> inside_;
};

TEST_F(Polling, TellsTheLaunchesOfAStreamInTheirOrder) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  std::vector<uint64_t> tickets;
  tickets.reserve(20);
  for (int i = 0; i < 20; ++i) tickets.push_back(CheckOne(stream, i % 3 == 1 ? Bad() : Clean()));
  const std::vector<Told> told = RunAndPoll({stream});
  EXPECT_EQ(TicketsOf(told), tickets);
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].outcome, i % 3 == 1 ? Outcome::kBad : Outcome::kClean) << i;
  }
  EXPECT_THAT(Poll(), IsEmpty());
}

TEST_F(Polling, TellsWhatTheKernelFoundInOutputsAndInputs) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  Check(stream, {Clean(), Tensor({0, kInf, kNan, kNan})}, {Tensor({5, -kInf}), Clean()});
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_EQ(told.size(), 1u);
  const CheckResult& result = told[0].result;
  EXPECT_EQ(result.output_kinds[0], 0);
  EXPECT_EQ(result.output_kinds[1], wire::kHasNan | wire::kHasPosInf);
  EXPECT_EQ(result.outputs[1].nan, 2u);
  EXPECT_EQ(result.outputs[1].first_bad, 1u);
  EXPECT_EQ(result.input_kinds[0], wire::kHasNegInf);
  EXPECT_EQ(result.inputs[0].finite_max, 5.0);
  EXPECT_EQ(told[0].hits, 1u);
}

TEST_F(Polling, TellsNothingOfALaunchThatIsNotDone) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  std::vector<uint64_t> tickets;
  tickets.reserve(16);
  for (int i = 0; i < 16; ++i) tickets.push_back(CheckOne(stream, Bad()));
  EXPECT_THAT(Poll(), IsEmpty());
  fake_cuda_run(stream, 7);  // the eighth is the first that tells how far the stream is
  EXPECT_THAT(Poll(), IsEmpty());
  fake_cuda_run(stream, 1);
  tickets.resize(8);
  EXPECT_EQ(TicketsOf(Poll()), tickets);
}

// Two threads on one stream: the later ticket may be launched first, and say how far the stream is.
TEST_F(Polling, DoesNotTakeALaunchForDoneThatALaterTicketOvertook) {
  options_.progress_every = 2;
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  uint64_t overtaking = 0;
  InsideTheNextLaunch([&] {  // two launches, of which the second tells
    overtaking = Check(stream, std::vector<DeviceTensor>(9, Clean())).first_ticket;
  });
  const uint64_t overtaken = CheckOne(stream, Bad());
  ASSERT_LT(overtaken, overtaking);
  fake_cuda_run(stream, 2);
  EXPECT_THAT(TicketsOf(Poll()), ElementsAre(overtaking, overtaking + 1));
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_THAT(TicketsOf(told), ElementsAre(overtaken));
  EXPECT_EQ(told[0].outcome, Outcome::kBad);
}

// Else the word would go back, and what was launched in between would never be known to be done.
TEST_F(Polling, LetsOneThreadAtATimeHaveAStreamTell) {
  options_.progress_every = 1;
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  InsideTheNextLaunch([&] { CheckOne(stream, Bad()); });
  CheckOne(stream, Bad());
  EXPECT_EQ(RunAndPoll({stream}).size(), 2u);
}

// Every stream but the default one is to report with each launch, and nobody asks it later.
TEST_F(Polling, TellsALaunchThatCouldNotReportBecauseAnotherThreadWasAboutTo) {
  options_.progress_every = 1;
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  uint64_t inner = 0;
  InsideTheNextLaunch([&] { inner = CheckOne(stream, Bad()); });
  const uint64_t outer = CheckOne(stream, Bad());
  fake_cuda_run_all();
  EXPECT_THAT(TicketsOf(Poll()), UnorderedElementsAre(outer, inner));
}

// The same where the other thread has reported, and gone, before this one has launched.
TEST_F(Polling, TellsALaunchThatCouldNotReportAndCameLater) {
  options_.progress_every = 1;
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  std::latch without_right(1), other_is_done(1);
  uint64_t inner = 0;
  std::thread thread;
  std::function<void()> inside_other = [&] {
    without_right.count_down();
    other_is_done.wait();
  };
  InsideTheNextLaunch([&] {
    fake_cuda_before_next_launch(
        [](void* inside) { (*static_cast<std::function<void()>*>(inside))(); }, &inside_other);
    thread = std::thread([&] {
      fake_cuda_set_device(0);
      inner = CheckOne(stream, Bad());
    });
    without_right.wait();
  });
  const uint64_t outer = CheckOne(stream, Bad());
  other_is_done.count_down();
  thread.join();
  fake_cuda_run_all();
  EXPECT_THAT(TicketsOf(Poll()), UnorderedElementsAre(outer, inner));
}

TEST_F(Polling, MakesUpForAFlushThatCameWhileAnotherThreadHadTheStreamTell) {
  options_.progress_every = 1;
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  InsideTheNextLaunch([&] {
    CheckOne(stream, Bad());
    EXPECT_EQ(checker_->Flush(0, static_cast<CuStream>(stream)), Skip::kNone);
  });
  CheckOne(stream, Bad());
  fake_cuda_run_all();
  EXPECT_EQ(Poll().size(), 2u);
}

TEST_F(Polling, FindsNothingWrittenForCleanLaunchesButHowFarTheStreamIs) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  const std::vector<std::byte> before = given_memory_[0];
  for (int i = 0; i < 40; ++i) CheckOne(stream, Clean());
  fake_cuda_run_all();
  const std::vector<std::byte>& after = given_memory_[0];
  size_t bytes_changed = 0;
  for (size_t i = 0; i < before.size(); ++i) bytes_changed += before[i] != after[i] ? 1 : 0;
  EXPECT_LE(bytes_changed, 8u);
  EXPECT_EQ(Poll().size(), 40u);
}

TEST_F(Polling, GivesTheSlotOfEveryFinishedLaunchBack) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  for (uint32_t i = 0; i < 10 * options_.slots; ++i) {
    CheckOne(stream, i % 5 == 0 ? Bad() : Clean());
    fake_cuda_run_all();
    Poll();
  }
  EXPECT_EQ(checker_->Counters().launches, 10 * options_.slots);
}

TEST_F(Polling, DoesNotTellAnOldResultOfALaterLaunchInTheSameSlot) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 8; ++i) CheckOne(stream, round == 1 ? Clean() : Bad());
    const std::vector<Told> told = RunAndPoll({stream});
    ASSERT_EQ(told.size(), 8u);
    for (const Told& one : told) {
      EXPECT_EQ(one.outcome, round == 1 ? Outcome::kClean : Outcome::kBad);
      EXPECT_EQ(one.hits, round == 1 ? 0u : 1u);
    }
  }
}

TEST_F(Polling, TellsNoKindsOfTensorsThatAnEarlierLaunchInTheSameSlotHad) {
  options_.slots = 8;
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  for (int i = 0; i < 8; ++i) {
    Check(stream, {Bad(), Bad(), Bad()}, {Bad(), Bad()});
    ASSERT_EQ(RunAndPoll({stream}).size(), 1u);
  }
  for (int i = 0; i < 8; ++i) {
    Check(stream, {Bad()}, {});
    const std::vector<Told> told = RunAndPoll({stream});
    ASSERT_EQ(told.size(), 1u);
    const CheckResult& result = told[0].result;
    EXPECT_THAT(result.output_kinds, ElementsAre(wire::kHasNan, 0, 0, 0, 0, 0, 0, 0));
    EXPECT_THAT(result.input_kinds, ::testing::Each(0));
  }
}

TEST_F(Polling, GoesOnWhileAnotherStreamNeverAdvances) {
  MakeReady();
  void* stuck = fake_cuda_new_stream(0);
  void* other = fake_cuda_new_stream(0);
  const uint64_t first = CheckOne(stuck, Clean());
  for (int i = 0; i < 200; ++i) {
    const uint64_t ticket = CheckOne(other, Bad());
    if (i % 8 != 7) continue;
    fake_cuda_run(other, SIZE_MAX);
    const std::vector<Told> told = Poll();
    EXPECT_THAT(TicketsOf(told), Contains(ticket));
    EXPECT_THAT(TicketsOf(told), Not(Contains(first)));
  }
  EXPECT_EQ(fake_cuda_queued(stuck), 1u);
}

TEST_F(Polling, LeavesRoomForOthersBesideAStreamThatNeverAdvances) {
  MakeReady();
  void* stuck = fake_cuda_new_stream(0);
  void* other = fake_cuda_new_stream(0);
  for (int i = 0; i < 48; ++i) CheckOne(stuck, Clean());  // three quarters of 64
  EXPECT_EQ(Check(stuck, {Clean()}).skip, Skip::kStreamNoSlot);
  EXPECT_EQ(Skips(Skip::kStreamNoSlot), 1u);
  CheckOne(other, Clean());
}

TEST_F(Polling, DropsAndCountsWhenNoSlotIsFreeAndGoesOnAfterwards) {
  MakeReady();
  void* streams[] = {fake_cuda_new_stream(0), fake_cuda_new_stream(0)};
  for (int i = 0; i < 64; ++i) CheckOne(streams[i % 2], Clean());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Check(streams[i % 2], {Bad()}).skip, Skip::kNoSlot);
  EXPECT_EQ(Skips(Skip::kNoSlot), 5u);
  EXPECT_EQ(checker_->Counters().launches, 64u);
  fake_cuda_run_all();
  EXPECT_EQ(Poll().size(), 64u);
  CheckOne(streams[0], Clean());
}

// Else slots would never come back: nothing is launched, so nothing would tell.
TEST_F(Polling, AsksAStreamThatFindsNoRoomHowFarItIs) {
  options_.slots = 64;
  options_.progress_every = 8;
  MakeReady();
  std::vector<void*> streams;
  streams.reserve(16);
  for (int i = 0; i < 16; ++i) streams.push_back(fake_cuda_new_stream(0));
  for (int i = 0; i < 64; ++i) CheckOne(streams[i % 16], Clean());  // four each: none tells
  EXPECT_EQ(Check(streams[0], {Clean()}).skip, Skip::kNoSlot);
  const size_t launches = fake_cuda_calls("cuLaunchKernel");
  EXPECT_EQ(Check(streams[0], {Clean()}).skip, Skip::kNoSlot);
  EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), launches);  // once is enough
  fake_cuda_run_all();
  EXPECT_EQ(Poll().size(), 4u);
  CheckOne(streams[0], Clean());
}

TEST_F(Polling, LearnsOfTheRestOfAQuietStreamByAFlush) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  const uint64_t ticket = CheckOne(stream, Bad());
  fake_cuda_run_all();
  EXPECT_THAT(Poll(), IsEmpty());
  EXPECT_THAT(TicketsOf(RunAndPoll({stream})), ElementsAre(ticket));
}

TEST_F(Polling, NeedsNoFlushWhereAllIsKnownOrOnItsWay) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  const auto flush = [&] {
    const size_t launches = fake_cuda_calls("cuLaunchKernel");
    EXPECT_EQ(checker_->Flush(0, static_cast<CuStream>(stream)), Skip::kNone);
    return fake_cuda_calls("cuLaunchKernel") - launches;
  };
  EXPECT_EQ(flush(), 0u);
  CheckOne(stream, Clean());
  EXPECT_EQ(flush(), 1u);
  EXPECT_EQ(flush(), 0u);
  fake_cuda_run_all();
  Poll();
  EXPECT_EQ(flush(), 0u);
  for (int i = 0; i < 8; ++i) CheckOne(stream, Clean());  // the last of them tells
  EXPECT_EQ(flush(), 0u);
}

TEST_F(Polling, TellsTwoDevicesApart) {
  MakeReady(0);
  MakeReady(1);
  void* streams[] = {fake_cuda_new_stream(0), fake_cuda_new_stream(1)};
  const uint64_t on_0 = CheckOne(streams[0], Clean(), 0);
  const uint64_t on_1 = CheckOne(streams[1], Bad(), 1);
  EXPECT_NE(on_0, on_1);
  EXPECT_EQ(checker_->Flush(0, static_cast<CuStream>(streams[0])), Skip::kNone);
  const std::vector<Told> told = RunAndPoll({streams[1]}, 1);
  ASSERT_THAT(TicketsOf(told), ElementsAre(on_0, on_1));
  EXPECT_EQ(told[0].device, 0);
  EXPECT_EQ(told[0].outcome, Outcome::kClean);
  EXPECT_EQ(told[1].device, 1);
  EXPECT_EQ(told[1].outcome, Outcome::kBad);
}

// By number and by handle: drivers before CUDA 12.0 have no numbers.
class StreamsOf : public Polling, public ::testing::WithParamInterface<bool> {
 protected:
  StreamsOf() {
    if (!GetParam()) driver_.stream_get_id = nullptr;
  }
};
INSTANTIATE_TEST_SUITE_P(Drivers, StreamsOf, ::testing::Bool(), [](const auto& run) {
  return run.param ? "WithStreamIds" : "WithHandlesAlone";
});

TEST_P(StreamsOf, TheLegacyDefaultHaveTwoHandlesAndOneOrder) {
  MakeReady();
  void* legacy = reinterpret_cast<void*>(kCuStreamLegacy);
  std::vector<uint64_t> tickets;
  tickets.reserve(8);
  for (int i = 0; i < 8; ++i) tickets.push_back(CheckOne(i % 2 == 0 ? nullptr : legacy, Clean()));
  fake_cuda_run_all();
  EXPECT_EQ(TicketsOf(Poll()), tickets);
}

TEST_P(StreamsOf, TwoThreadsWithTheirOwnDefaultAdvanceApart) {
  MakeReady();
  void* per_thread = reinterpret_cast<void*>(kCuStreamPerThread);
  for (int i = 0; i < 7; ++i) CheckOne(per_thread, Bad());
  std::thread([&] {
    fake_cuda_set_device(0);
    // The eighth on one stream would tell; the first on the other does not.
    CheckOne(per_thread, Bad());
    fake_cuda_run(per_thread, SIZE_MAX);
  }).join();
  EXPECT_THAT(Poll(), IsEmpty());
  CheckOne(per_thread, Bad());
  fake_cuda_run(per_thread, SIZE_MAX);
  EXPECT_EQ(Poll().size(), 8u);
}

TEST_F(Polling, CountsWhatComesOnMoreStreamsThanItHasRoomFor) {
  options_.slots = 512;
  MakeReady();
  Skip last = Skip::kNone;
  for (int i = 0; i < 193; ++i) last = Check(fake_cuda_new_stream(0), {Clean()}).skip;
  EXPECT_EQ(last, Skip::kNoStreamEntry);
  EXPECT_EQ(checker_->Counters().launches, 192u);
}

// A callback may look at the checker; a poll in a poll would wait for itself.
TEST_F(Polling, DoesNothingInsideItself) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  for (int i = 0; i < 8; ++i) CheckOne(stream, Clean());
  fake_cuda_run_all();
  static size_t inner;
  inner = 1;
  const size_t told = checker_->Poll(
      [](void* checker, const Finished&) {
        inner = static_cast<DeviceChecker*>(checker)->Poll([](void*, const Finished&) {}, nullptr);
      },
      checker_.get());
  EXPECT_EQ(told, 8u);
  EXPECT_EQ(inner, 0u);
}

}  // namespace
}  // namespace nanwatch::device
