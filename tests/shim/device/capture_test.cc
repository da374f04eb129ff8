#include <gmock/gmock.h>

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
  EXPECT_EQ(fake_cuda_graph_nodes(graph), 1u);
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

TEST_F(Capture, SeesOnlyTheLaunchItself) {
  MakeReady();
  for (const int mode : kModes) {
    void* stream = fake_cuda_new_stream(0);
    fake_cuda_begin_capture(stream, mode);
    const size_t before = fake_cuda_log_size();
    CheckOne(stream, Clean());
    EXPECT_THAT(LogSince(before),
                ElementsAre("cuCtxGetCurrent", "cuStreamIsCapturing", "cuLaunchKernel"));
    EXPECT_EQ(checker_->AddStep(0, static_cast<CuStream>(stream)), Skip::kNone);
    EXPECT_EQ(checker_->Flush(0, static_cast<CuStream>(stream)), Skip::kNone);
    Poll();
    EXPECT_EQ(fake_cuda_graph_nodes(fake_cuda_end_capture(stream)), 2u);
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
  EXPECT_EQ(fake_cuda_graph_nodes(fake_cuda_end_capture(stream)), 16u);
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
