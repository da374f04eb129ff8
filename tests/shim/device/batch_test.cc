// SPDX-License-Identifier: Apache-2.0
// Batches: one launch each, what it is given, and what is told of it.
#include <gmock/gmock.h>

#include "proto/wire/record.h"
#include "tests/shim/device/checker_fixture.h"

namespace nanwatch::device {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Outcome = Finished::Outcome;

class Batches : public CheckerTest {
 protected:
  std::vector<BatchEntry> Entries(size_t count) {
    return std::vector<BatchEntry>(count, Entry(Clean()));
  }
};

TEST_F(Batches, AreOneLaunchEach) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  for (const size_t entries : {1, 16, 24}) {
    EXPECT_EQ(CheckBatch(stream, Entries(entries), Entries(24)).launches, 1u);
  }
  for (const Told& told : RunAndPoll({stream})) EXPECT_EQ(told.outcome, Outcome::kClean);
  EXPECT_EQ(BatchLaunches(), 3u);
  EXPECT_EQ(FewLaunches() + ManyLaunches() + ListLaunches(), 0u);
  EXPECT_EQ(checker_->Counters().launches, 3u);
}

TEST_F(Batches, TellWhatIsInEachTensorAndTheFiguresOfTheBad) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  std::vector<BatchEntry> entries = Entries(16), others = Entries(3);
  entries[7] = Entry(Bad());
  entries[9] = others[1] = Entry(Tensor({-kInf, 1}));
  const Enqueued enqueued = CheckBatch(stream, entries, others);
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_THAT(TicketsOf(told), ElementsAre(enqueued.first_ticket));
  EXPECT_EQ(told[0].outcome, Outcome::kBad);
  const BatchResult batch = BatchOf(told[0].result);
  EXPECT_EQ(batch.KindsOf(7), wire::kHasNan);
  EXPECT_EQ(batch.KindsOf(9), wire::kHasNegInf);
  EXPECT_EQ(batch.KindsOf(16 + 1), wire::kHasNegInf);
  EXPECT_EQ(batch.KindsOf(8), 0);
  EXPECT_TRUE(batch.WasReadInFull(16));
  EXPECT_EQ(batch.counted, 3u);
  ASSERT_NE(batch.CountsOf(7), nullptr);
  EXPECT_EQ(batch.CountsOf(7)->first_bad, 1u);
  EXPECT_EQ(batch.CountsOf(8), nullptr);
}

TEST_F(Batches, OfMasksAreClean) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  CheckBatch(stream, {Entry(Tensor({-kInf, 1}))}, {Entry(Bad())});
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].outcome, Outcome::kClean);
}

TEST_F(Batches, GiveTheirSlotBackAsItWas) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(CheckBatch(stream, {Entry(Bad())}).skip, Skip::kNone);
    EXPECT_EQ(Check(stream, {Bad()}).skip, Skip::kNone);
    EXPECT_EQ(CheckList(stream, {Entry(Bad())}).skip, Skip::kNone);
    EXPECT_EQ(RunAndPoll({stream}).size(), 3u);
  }
}

TEST_F(Batches, AskForTheirPhaseOrForAll) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  const std::vector<BatchEntry> entries = Entries(2);
  CheckBatchRequest request = {static_cast<CuStream>(stream), 0, entries, {}, 11};
  EXPECT_EQ(checker_->EnqueueBatch(request).launches, 1u);
  fake_cuda_run_all();
  EXPECT_EQ(LastPhase(), 11u);
  EXPECT_EQ(LastFlags(), 0u);
  request.read_all = true;
  EXPECT_EQ(checker_->EnqueueBatch(request).launches, 1u);
  fake_cuda_run_all();
  EXPECT_EQ(LastFlags(), kReadAll);
}

TEST_F(Batches, HaveABlockForEachTileUntilTheDeviceIsFull) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  const DeviceTensor large = Tensor(std::vector<float>(200'000));  // 13 tiles
  CheckBatch(stream, {Entry(large), Entry(Clean())});
  fake_cuda_run_all();
  EXPECT_EQ(LastGrid(), 14);
  CheckBatch(stream, std::vector<BatchEntry>(20, Entry(large)));
  fake_cuda_run_all();
  EXPECT_EQ(LastGrid(), 200) << "the fake's device 0 has 100 multiprocessors";
}

TEST_F(Batches, LeaveOutAndCountWhatIsBeyondTheirSize) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  EXPECT_EQ(CheckBatch(stream, Entries(kBatchEntriesMax), Entries(kBatchOthersMax)).launches, 1u);
  EXPECT_EQ(checker_->Counters().inputs_left_out, 0u);
  EXPECT_EQ(
      CheckBatch(stream, Entries(kBatchEntriesMax + 2), Entries(kBatchOthersMax + 3)).launches, 1u);
  EXPECT_EQ(checker_->Counters().inputs_left_out, 5u);
  fake_cuda_run_all();
}

TEST_F(Batches, OfNoElementThatIsReadAreLeftAlone) {
  MakeReady();
  EXPECT_EQ(CheckBatch(nullptr, {}).skip, Skip::kNothingToCheck);
  EXPECT_EQ(CheckBatch(nullptr, {Entry(Tensor({}))}, {Entry(Bad())}).skip, Skip::kNothingToCheck);
  EXPECT_EQ(CheckBatch(nullptr, {MakeEntry(4096, 7, 0)}).skip, Skip::kNothingToCheck);
}

TEST_F(Batches, ReportByThemselvesWhereAsked) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  const std::vector<BatchEntry> entries = Entries(3);
  CheckBatchRequest request = {static_cast<CuStream>(stream), 0, entries, {}};
  EXPECT_EQ(checker_->EnqueueBatch(request).launches, 1u);
  fake_cuda_run_all();
  EXPECT_THAT(Poll(), IsEmpty());
  request.reports = true;
  EXPECT_EQ(checker_->EnqueueBatch(request).launches, 1u);
  fake_cuda_run_all();
  EXPECT_EQ(Poll().size(), 2u) << "nobody has asked the stream how far it is";
}

TEST_F(Batches, InAGraphAnswerForEveryReplay) {
  MakeReady();
  std::vector<BatchEntry> entries = Entries(3);
  entries[2] = Entry(Clean());
  float* const values = values_.back().data();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_begin_capture(stream, kCuCaptureModeGlobal);
  const Enqueued enqueued = CheckBatch(stream, entries);
  const int graph = fake_cuda_end_capture(stream);
  EXPECT_EQ(enqueued.launches, 1u);
  EXPECT_EQ(enqueued.graph, 1u);
  EXPECT_EQ(fake_cuda_graph_nodes(graph), 2u) << "what counts the replays, and the launch";
  fake_cuda_replay(graph, stream);
  fake_cuda_run_all();
  EXPECT_THAT(Poll(), IsEmpty());
  values[1] = kInf;
  for (uint64_t hits = 1; hits < 3; ++hits) {
    fake_cuda_replay(graph, stream);
    fake_cuda_run_all();
    const std::vector<Told> told = Poll();
    ASSERT_THAT(TicketsOf(told), ElementsAre(enqueued.first_ticket));
    EXPECT_EQ(told[0].hits, hits);
    CheckResult result;
    EXPECT_EQ(checker_->FoundIn(0, enqueued.captured_slot, hits, hits + 1, &result),
              hits == 1 ? Found::kFirst : Found::kAgain);
    EXPECT_EQ(BatchOf(result).KindsOf(2), wire::kHasPosInf);
  }
}

TEST_F(Batches, AreLostWithTheContext) {
  MakeReady();
  const std::vector<BatchEntry> entries = Entries(2);
  LoseTwo([&](void* stream, int) { return CheckBatch(stream, entries); });
}

}  // namespace
}  // namespace nanwatch::device
