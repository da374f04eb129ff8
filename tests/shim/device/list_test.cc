// SPDX-License-Identifier: Apache-2.0
// Lists: how they are cut into launches, and what is told of them.
#include <gmock/gmock.h>

#include "proto/wire/record.h"
#include "tests/shim/device/checker_fixture.h"

namespace nanwatch::device {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Outcome = Finished::Outcome;

class Lists : public CheckerTest {
 protected:
  std::vector<ListEntry> Entries(size_t count) {
    return std::vector<ListEntry>(count, Entry(Clean()));
  }
  static std::vector<uint32_t> BadOf(const Told& told) {
    const ListResult list = ListOf(told.result);
    std::vector<uint32_t> bad;
    for (uint32_t i = 0; i < 32 * kListWords; ++i) {
      if (list.IsBad(i)) bad.push_back(i);
    }
    return bad;
  }
};

TEST_F(Lists, AreOneLaunchForTwoHundredAndFiftyTensors) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  for (const auto& [tensors, launches] :
       std::vector<std::pair<size_t, uint32_t>>{{1, 1}, {148, 1}, {250, 1}, {251, 2}, {501, 3}}) {
    EXPECT_EQ(CheckList(stream, Entries(tensors)).launches, launches) << tensors;
  }
  for (const Told& told : RunAndPoll({stream})) EXPECT_EQ(told.outcome, Outcome::kClean);
  EXPECT_EQ(ListLaunches(), 8u);
  EXPECT_EQ(FewLaunches() + ManyLaunches(), 0u);
  EXPECT_EQ(checker_->Counters().launches, 8u);
}

TEST_F(Lists, TellWhichEntriesAreBadAndTheFiguresOfTheFirst) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  std::vector<ListEntry> entries = Entries(300);
  entries[7] = Entry(Bad());
  entries[249] = entries[251] = Entry(Tensor({-kInf, 1}));
  const Enqueued enqueued = CheckList(stream, entries);
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_THAT(TicketsOf(told), ElementsAre(enqueued.first_ticket, enqueued.first_ticket + 1));
  EXPECT_THAT(BadOf(told[0]), ElementsAre(7, 249));
  EXPECT_THAT(BadOf(told[1]), ElementsAre(1));
  const ListResult list = ListOf(told[0].result);
  EXPECT_EQ(list.counted, 2u);
  EXPECT_EQ(list.entry[1], 249);
  EXPECT_EQ(list.kinds[0], wire::kHasNan);
  EXPECT_EQ(list.counts[0].first_bad, 1u);
  EXPECT_EQ(list.counts[1].neg_inf, 1u);
}

TEST_F(Lists, LookBehindAGateOnlyWhereItIsBad) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  const std::vector<ListEntry> others = {Entry(Clean()), Entry(Bad())};
  EXPECT_EQ(CheckList(stream, {Entry(Clean())}, others).launches, 1u);
  EXPECT_EQ(CheckList(stream, {Entry(Clean()), Entry(Bad())}, others).launches, 1u);
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].outcome, Outcome::kClean);
  EXPECT_THAT(BadOf(told[1]), ElementsAre(1, 3));
}

TEST_F(Lists, HaveTheGateInEveryLaunchOfWhatStandsBehindIt) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  std::vector<ListEntry> others = Entries(500);
  others[248] = others[248 + 249] = Entry(Bad());
  EXPECT_EQ(CheckList(stream, {Entry(Bad())}, others).launches, 3u);
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_EQ(told.size(), 3u);
  EXPECT_THAT(BadOf(told[0]), ElementsAre(0, 249));
  EXPECT_THAT(BadOf(told[1]), ElementsAre(0, 249));
  EXPECT_THAT(BadOf(told[2]), ElementsAre(0));
}

TEST_F(Lists, LeaveOutAndCountWhatStandsBehindTooLongAGate) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  EXPECT_EQ(CheckList(stream, Entries(kListGateMax), Entries(3)).launches, 1u);
  EXPECT_EQ(checker_->Counters().inputs_left_out, 0u);
  EXPECT_EQ(CheckList(stream, Entries(kListGateMax + 1), Entries(3)).launches, 1u);
  EXPECT_EQ(checker_->Counters().inputs_left_out, 3u);
}

TEST_F(Lists, OfNoElementAreLeftAlone) {
  MakeReady();
  EXPECT_EQ(CheckList(nullptr, {}).skip, Skip::kNothingToCheck);
  EXPECT_EQ(CheckList(nullptr, {Entry(Tensor({}))}, {Entry(Bad())}).skip, Skip::kNothingToCheck);
}

TEST_F(Lists, AskTheirOwnRuleForTheNumberOfBlocks) {
  MakeReady();
  CheckList(fake_cuda_new_stream(0), Entries(3), Entries(9));
  fake_cuda_run_all();
  EXPECT_EQ(LastGrid(), 30'100);  // the fake's device 0 has 100 multiprocessors
}

TEST_F(Lists, ReportByThemselvesWhereAsked) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  const std::vector<ListEntry> entries = Entries(300);
  EXPECT_EQ(checker_->EnqueueList({static_cast<CuStream>(stream), 0, entries, {}, true}).launches,
            2u);
  fake_cuda_run_all();
  EXPECT_EQ(Poll().size(), 2u) << "nobody has asked the stream how far it is";
}

TEST_F(Lists, InAGraphAnswerForEveryReplay) {
  MakeReady();
  std::vector<ListEntry> entries = Entries(300);
  entries[260] = Entry(Clean());
  float* const values = values_.back().data();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_begin_capture(stream, kCuCaptureModeGlobal);
  const Enqueued enqueued = CheckList(stream, entries);
  const int graph = fake_cuda_end_capture(stream);
  EXPECT_EQ(enqueued.launches, 2u);
  EXPECT_EQ(fake_cuda_graph_nodes(graph), 3u) << "what counts the replays, and two launches";
  fake_cuda_replay(graph, stream);
  fake_cuda_run_all();
  EXPECT_THAT(Poll(), IsEmpty());
  values[1] = kInf;
  for (uint64_t hits = 1; hits < 3; ++hits) {
    fake_cuda_replay(graph, stream);
    fake_cuda_run_all();
    const std::vector<Told> told = Poll();
    ASSERT_THAT(TicketsOf(told), ElementsAre(enqueued.first_ticket + 1));
    EXPECT_EQ(told[0].hits, hits);
    EXPECT_THAT(BadOf(told[0]), ElementsAre(10));
    CheckResult result;
    EXPECT_EQ(checker_->FoundIn(0, enqueued.captured_slot, hits, hits + 1, &result),
              hits == 1 ? Found::kFirst : Found::kAgain);
    EXPECT_TRUE(ListOf(result).IsBad(10));
  }
}

}  // namespace
}  // namespace nanwatch::device
