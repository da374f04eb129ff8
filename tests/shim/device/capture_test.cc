// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <thread>

#include "tests/shim/device/checker_fixture.h"

namespace nanwatch::device {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Outcome = Finished::Outcome;

constexpr int kModes[] = {kCuCaptureModeGlobal, kCuCaptureModeThreadLocal, kCuCaptureModeRelaxed};

class Capture : public CheckerTest {
 protected:
  // A capture of one check on a stream of its own; the graph.
  int Graph(const DeviceTensor& output, uint64_t* ticket) {
    void* stream = fake_cuda_new_stream(0);
    fake_cuda_begin_capture(stream, kCuCaptureModeGlobal);
    *ticket = CheckOne(stream, output);
    return fake_cuda_end_capture(stream);
  }
};

TEST_F(Capture, MakesTheCheckANodeThatEveryReplayRuns) {
  MakeReady();
  const DeviceTensor output = Clean();
  uint64_t ticket = 0;
  const int graph = Graph(output, &ticket);
  ASSERT_GE(graph, 0);
  EXPECT_EQ(fake_cuda_graph_nodes(graph), 2u) << "what counts the replays, and the check";
  void* stream = fake_cuda_new_stream(0);

  fake_cuda_replay(graph, stream);
  fake_cuda_run_all();
  EXPECT_THAT(Poll(), IsEmpty());

  values_.back()[1] = kNan;  // what the graph's op writes from now on
  fake_cuda_replay(graph, stream);
  fake_cuda_run_all();
  std::vector<Told> told = Poll();
  ASSERT_THAT(TicketsOf(told), ElementsAre(ticket));
  EXPECT_TRUE(told[0].captured);
  EXPECT_EQ(told[0].outcome, Outcome::kBad);
  EXPECT_EQ(told[0].hits, 1u);
  EXPECT_THAT(Poll(), IsEmpty());

  fake_cuda_replay(graph, stream);
  fake_cuda_replay(graph, stream);
  fake_cuda_run_all();
  told = Poll();
  ASSERT_THAT(TicketsOf(told), ElementsAre(ticket));
  EXPECT_EQ(told[0].hits, 3u);
  EXPECT_EQ(told[0].result.outputs[0].nan, 1u);
}

// A check in a graph whose replays nobody counts would be told of no replay.
TEST_F(Capture, BeginsAnewWithWhatCountsTheReplaysWhereThatCouldNotBeLaunched) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_begin_capture(stream, kCuCaptureModeGlobal);
  fake_cuda_fail("cuLaunchKernel", 1, 1, kCuOutOfMemory);
  EXPECT_NE(Check(stream, {Clean()}).skip, Skip::kNone);
  CheckOne(stream, Clean());
  EXPECT_EQ(fake_cuda_graph_nodes(fake_cuda_end_capture(stream)), 2u);
}

TEST_F(Capture, SeesOnlyTheLaunchItself) {
  MakeReady();
  for (const int mode : kModes) {
    void* stream = fake_cuda_new_stream(0);
    fake_cuda_begin_capture(stream, mode);
    const size_t before = fake_cuda_log_size();
    CheckOne(stream, Clean());
    EXPECT_THAT(LogSince(before),
                ElementsAre("cuCtxGetCurrent", "cuStreamIsCapturing", "cuStreamGetCaptureInfo_v2",
                            "cuLaunchKernel", "cuLaunchKernel"));
    EXPECT_EQ(checker_->AddStep(0, static_cast<CuStream>(stream)), Skip::kNone);
    EXPECT_EQ(checker_->Flush(0, static_cast<CuStream>(stream)), Skip::kNone);
    Poll();
    EXPECT_EQ(fake_cuda_graph_nodes(fake_cuda_end_capture(stream)), 3u);
  }
}

TEST_F(Capture, HoldsTheFirstSightOfADeviceUpUntilItEnds) {
  Make();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_begin_capture(stream, kCuCaptureModeGlobal);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Check(stream, {Bad()}).skip, Skip::kCapturedBeforeReady);
  }
  EXPECT_EQ(fake_cuda_calls("cuModuleLoadDataEx"), 0u);
  EXPECT_EQ(fake_cuda_calls("cuMemAlloc_v2"), 0u);
  EXPECT_EQ(fake_cuda_graph_nodes(fake_cuda_end_capture(stream)), 0u);
  EXPECT_EQ(Skips(Skip::kCapturedBeforeReady), 3u);
  MakeReady();
  CheckOne(stream, Clean());
}

// In CUDA's default mode a capture in one thread forbids allocations in all the others.
TEST_F(Capture, IsNotRuinedByAnotherThreadsFirstSightOfADevice) {
  Make();
  void* captured = fake_cuda_new_stream(0);
  fake_cuda_begin_capture(captured, kCuCaptureModeGlobal);
  std::thread([&] {
    fake_cuda_set_device(1);
    MakeReady(1);
    // The mode is the thread's own again: what was forbidden before is forbidden now.
    int32_t mode = kCuCaptureModeThreadLocal;
    driver_.thread_exchange_capture_mode(&mode);
    EXPECT_EQ(mode, kCuCaptureModeGlobal);
  }).join();
  EXPECT_GE(fake_cuda_end_capture(captured), 0);
}

TEST_F(Capture, IsNotRuinedByTheSameThreadsFirstSightOfAnotherDevice) {
  Make();
  void* captured = fake_cuda_new_stream(0);
  fake_cuda_begin_capture(captured, kCuCaptureModeGlobal);
  MakeReady(1);
  EXPECT_GE(fake_cuda_end_capture(captured), 0);
}

TEST_F(Capture, KeepsItsSlotsWhateverElseIsChecked) {
  MakeReady();
  uint64_t ticket = 0;
  const int graph = Graph(Bad(), &ticket);
  void* stream = fake_cuda_new_stream(0);
  for (uint32_t i = 0; i < 4 * options_.slots; ++i) {
    CheckOne(stream, Clean());
    fake_cuda_run_all();
    Poll();
  }
  fake_cuda_replay(graph, stream);
  fake_cuda_run_all();
  EXPECT_THAT(TicketsOf(Poll()), ElementsAre(ticket));
}

TEST_F(Capture, CountsWhatItHasNoPermanentSlotFor) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_begin_capture(stream, kCuCaptureModeGlobal);
  for (int i = 0; i < 16; ++i) CheckOne(stream, Clean());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Check(stream, {Clean()}).skip, Skip::kNoCapturedSlot);
  EXPECT_EQ(Skips(Skip::kNoCapturedSlot), 3u);
  EXPECT_EQ(fake_cuda_graph_nodes(fake_cuda_end_capture(stream)), 1u + 16u);
  CheckOne(stream, Clean());
}

TEST_F(Capture, TellsOfMoreReplaysThanOnePollLooksAt) {
  options_.captured_slots = 1500;
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_begin_capture(stream, kCuCaptureModeGlobal);
  for (int i = 0; i < 1500; ++i) CheckOne(stream, Bad());
  fake_cuda_replay(fake_cuda_end_capture(stream), stream);
  fake_cuda_run_all();
  size_t told = 0;
  for (int i = 0; i < 3; ++i) told += Poll().size();
  EXPECT_EQ(told, 1500u);
}

TEST_F(Capture, LeavesARuinedOneAlone) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_fail("cuStreamIsCapturing", 1, 1, kCuStreamCaptureInvalidated);
  EXPECT_EQ(Check(stream, {Clean()}).skip, Skip::kCaptureUnknown);
  EXPECT_EQ(fake_cuda_queued(stream), 0u);
  CheckOne(stream, Clean());
}

// The legacy stream cannot be used, nor asked, while a stream that waits for it is captured.
TEST_F(Capture, KeepsTheLegacyStreamUncheckedAndTheDeviceUp) {
  MakeReady();
  void* captured = fake_cuda_new_stream(0);
  fake_cuda_begin_capture(captured, kCuCaptureModeGlobal);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Check(nullptr, {Clean()}).skip, Skip::kCaptureUnknown);
  EXPECT_EQ(Skips(Skip::kCaptureUnknown), 20u);
  EXPECT_EQ(Failures(Failure::kCapture), 20u);
  EXPECT_GE(fake_cuda_end_capture(captured), 0);
  CheckOne(nullptr, Clean());
}

TEST_F(Capture, SaysInWhichReplaysSomethingWasFoundHoweverLateItIsAsked) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_begin_capture(stream, kCuCaptureModeGlobal);
  std::vector<float>& values = values_.emplace_back(std::vector<float>{1, 2, 3});
  DeviceTensor output = Clean();
  output.data = reinterpret_cast<uint64_t>(values.data());
  const Enqueued enqueued = Check(stream, {output});
  const int graph = fake_cuda_end_capture(stream);
  const std::vector<uint64_t> bad = {3, 4, 67, 80};
  const auto replay = [&](uint64_t from, uint64_t to) {
    for (uint64_t number = from; number <= to; ++number) {
      values[1] = std::find(bad.begin(), bad.end(), number) != bad.end() ? kNan : 2;
      fake_cuda_replay(graph, stream);
      fake_cuda_run_all();
    }
  };
  CheckResult result = {};
  const auto found = [&](uint64_t after, uint64_t through) {
    return checker_->FoundIn(0, enqueued.captured_slot, after, through, &result);
  };
  EXPECT_EQ(found(0, 100), Found::kNothing);
  replay(1, 66);
  for (uint64_t number = 1; number <= 66; ++number) {
    const Found expected = number == 3   ? Found::kFirst
                           : number == 4 ? Found::kAgain
                                         : Found::kNothing;
    EXPECT_EQ(found(number - 1, number), expected) << number;
  }
  EXPECT_EQ(found(0, 2), Found::kNothing);
  EXPECT_EQ(found(1, 9), Found::kFirst);
  EXPECT_EQ(result.outputs[0].nan, 1u);
  EXPECT_EQ(found(3, 9), Found::kAgain);
  EXPECT_EQ(found(4, 66), Found::kNothing);
  replay(67, 79);
  EXPECT_EQ(found(66, 67), Found::kAgain) << "the last that is marked by itself";
  EXPECT_EQ(found(70, 71), Found::kAgain) << "that or a later one";
  checker_->Forget(0, enqueued.captured_slot);
  EXPECT_EQ(found(66, 79), Found::kNothing);
  replay(80, 81);
  EXPECT_EQ(found(79, 80), Found::kFirst);
  EXPECT_EQ(found(80, 81), Found::kNothing);
}

TEST_F(Capture, TellsGraphsApart) {
  MakeReady();
  void* streams[] = {fake_cuda_new_stream(0), fake_cuda_new_stream(0)};
  uint32_t slots[2];
  int graphs[2];
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(checker_->CapturedInto(0, static_cast<CuStream>(streams[i])), 0u);
    fake_cuda_begin_capture(streams[i], kCuCaptureModeGlobal);
    if (i == 0) {
      EXPECT_EQ(checker_->CapturedInto(0, static_cast<CuStream>(streams[i])), 1u);
    }
    EXPECT_EQ(Check(streams[i], {Clean()}).graph, static_cast<uint32_t>(i + 1));
    const Enqueued enqueued = Check(streams[i], {Bad()});
    EXPECT_EQ(enqueued.graph, static_cast<uint32_t>(i + 1));
    slots[i] = enqueued.captured_slot;
    EXPECT_EQ(checker_->CapturedInto(0, static_cast<CuStream>(streams[i])), enqueued.graph);
    graphs[i] = fake_cuda_end_capture(streams[i]);
    EXPECT_EQ(fake_cuda_graph_nodes(graphs[i]), 3u);
  }
  fake_cuda_replay(graphs[1], streams[0]);
  fake_cuda_replay(graphs[1], streams[0]);
  fake_cuda_replay(graphs[0], streams[0]);
  fake_cuda_run_all();
  CheckResult result = {};
  EXPECT_EQ(checker_->FoundIn(0, slots[0], 0, 1, &result), Found::kFirst);
  EXPECT_EQ(checker_->FoundIn(0, slots[0], 1, 2, &result), Found::kNothing);
  EXPECT_EQ(checker_->FoundIn(0, slots[1], 1, 2, &result), Found::kAgain);
}

TEST_F(Capture, IsNumberedByTheThirdFormOfTheCallWhereTheSecondIsAbsent) {
  driver_.stream_get_capture_info = nullptr;
  MakeReady();
  const DeviceTensor output = Bad();
  uint64_t ticket = 0;
  void* stream = fake_cuda_new_stream(0);
  for (int i = 0; i < 2; ++i) {
    fake_cuda_replay(Graph(output, &ticket), stream);
    fake_cuda_run_all();
    EXPECT_THAT(TicketsOf(Poll()), ElementsAre(ticket));
  }
  EXPECT_EQ(fake_cuda_calls("cuStreamGetCaptureInfo_v2"), 2u) << "which the fake's third calls";
  EXPECT_EQ(fake_cuda_calls("cuStreamGetCaptureInfo_v3"), 2u);
}

TEST_F(Capture, IsLeftUncheckedWhereTheDriverDoesNotNumberIt) {
  driver_.stream_get_capture_info = nullptr;
  driver_.stream_get_capture_info_v3 = nullptr;
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_begin_capture(stream, kCuCaptureModeGlobal);
  EXPECT_EQ(Check(stream, {Clean()}).skip, Skip::kCaptureUnknown);
  EXPECT_EQ(fake_cuda_graph_nodes(fake_cuda_end_capture(stream)), 0u);
}

TEST_F(Capture, TellsAMarkWhenWhatWasReplayedBeforeItIsDone) {
  MakeReady();
  uint64_t ticket = 0;
  const int graph = Graph(Clean(), &ticket);
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_replay(graph, stream);
  const Enqueued mark = checker_->Mark(0, static_cast<CuStream>(stream));
  ASSERT_EQ(mark.skip, Skip::kNone);
  fake_cuda_run(stream, 2);
  EXPECT_THAT(Poll(), IsEmpty());
  fake_cuda_run(stream, 1);
  EXPECT_THAT(TicketsOf(Poll()), ElementsAre(mark.first_ticket));
}

TEST_F(Capture, CountsAStepAtEveryReplay) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_begin_capture(stream, kCuCaptureModeGlobal);
  EXPECT_EQ(checker_->AddStep(0, static_cast<CuStream>(stream)), Skip::kNone);
  const int graph = fake_cuda_end_capture(stream);
  for (int i = 0; i < 3; ++i) fake_cuda_replay(graph, stream);
  CheckOne(stream, Bad());
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].result.step, 3u);
}

}  // namespace
}  // namespace nanwatch::device
