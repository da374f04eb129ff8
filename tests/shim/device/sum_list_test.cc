// SPDX-License-Identifier: Apache-2.0
// Sums of lists: of which launches they are told, and that they are that launch's own.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/shim/device/checker_fixture.h"

namespace nanwatch::device {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using Outcome = Finished::Outcome;

class Sums : public CheckerTest {
 protected:
  Enqueued SumList(void* stream, const std::vector<ListEntry>& gate,
                   const std::vector<ListEntry>& others = {}) {
    return checker_->EnqueueList(
        {static_cast<CuStream>(stream), 0, gate, others, /*reports=*/false, /*sums=*/true});
  }
  ListEntry Scalar(float value) { return Entry(Tensor({value})); }
};

TEST_F(Sums, AreToldOfACleanListAndOfABadOne) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  SumList(stream, {Entry(Tensor({3, 4})), Entry(Tensor({0, 0})), Entry(Tensor({0, 12}))});
  SumList(stream, {Entry(Tensor({kNan, 4})), Entry(Tensor({0}))});
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_EQ(told[0].outcome, Outcome::kClean);
  ASSERT_TRUE(told[0].sums.has_value());
  EXPECT_EQ(told[0].sums->squares, 169);
  EXPECT_EQ(told[0].sums->first, 3);
  EXPECT_FALSE(told[0].sums->IsZero(0));
  EXPECT_TRUE(told[0].sums->IsZero(1));
  EXPECT_FALSE(told[0].sums->IsZero(2));
  EXPECT_EQ(told[1].outcome, Outcome::kBad);
  EXPECT_TRUE(ListOf(told[1].result).IsBad(0));
  ASSERT_TRUE(told[1].sums.has_value());
  EXPECT_TRUE(std::isnan(told[1].sums->first));
  EXPECT_TRUE(told[1].sums->IsZero(1));
  EXPECT_EQ(SumLaunches(), 2u);
  EXPECT_EQ(ListLaunches(), 0u);
}

TEST_F(Sums, AreNullWhereNobodyAskedForThem) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  CheckList(stream, {Scalar(5)});
  CheckList(stream, {Scalar(kInf)});
  CheckOne(stream, Clean());
  CheckOne(stream, Bad());
  checker_->Mark(0, static_cast<CuStream>(stream));
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_THAT(told, SizeIs(5));
  for (const Told& one : told) EXPECT_FALSE(one.sums.has_value()) << one.ticket;
  EXPECT_EQ(SumLaunches(), 0u);
}

TEST_F(Sums, OfManyLaunchesAreToldInOrder) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  float next = 1;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 20; ++i) SumList(stream, {Scalar(next + static_cast<float>(i))});
    const std::vector<Told> told = RunAndPoll({stream});
    ASSERT_THAT(told, SizeIs(20));
    for (const Told& one : told) {
      ASSERT_TRUE(one.sums.has_value());
      EXPECT_EQ(one.sums->first, next);
      EXPECT_EQ(one.sums->squares, double{next} * next);
      ++next;
    }
  }
}

// All slots have held sums; none of the launches that come to them after has asked for any.
TEST_F(Sums, OfAnEarlierLaunchAreNotTakenForThoseOfTheNext) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 40; ++i) SumList(stream, {Scalar(i % 3 == 0 ? kNan : 7)});
    EXPECT_THAT(RunAndPoll({stream}), SizeIs(40));
  }
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 20; ++i) CheckList(stream, {Scalar(i % 3 == 0 ? kNan : 7)});
    for (int i = 0; i < 20; ++i) CheckOne(stream, i % 3 == 0 ? Bad() : Clean());
    const std::vector<Told> told = RunAndPoll({stream});
    EXPECT_THAT(told, SizeIs(40));
    for (const Told& one : told) ASSERT_FALSE(one.sums.has_value()) << one.ticket;
  }
}

TEST_F(Sums, OfALongGateAreToldByEachLaunchOfItsOwnEntries) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  std::vector<ListEntry> gate(kListMax + 3, Scalar(1));
  gate[kListMax] = Scalar(2);
  gate[kListMax + 1] = Scalar(0);
  EXPECT_EQ(SumList(stream, gate).launches, 2u);
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_THAT(told, SizeIs(2));
  ASSERT_TRUE(told[0].sums.has_value() && told[1].sums.has_value());
  EXPECT_EQ(told[0].sums->squares, kListMax);
  EXPECT_EQ(told[1].sums->squares, 5);
  EXPECT_EQ(told[1].sums->first, 2);
  EXPECT_TRUE(told[1].sums->IsZero(1));
}

TEST_F(Sums, OfAGateThatSeveralLaunchesLookAtAreToldOnce) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  const std::vector<ListEntry> others(500, Scalar(9));
  EXPECT_EQ(SumList(stream, {Scalar(3), Scalar(kNan)}, others).launches, 3u);
  EXPECT_EQ(SumList(stream, {Scalar(3)}, others).launches, 3u);
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_THAT(told, SizeIs(6));
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].outcome, i < 3 ? Outcome::kBad : Outcome::kClean);
    EXPECT_EQ(told[i].sums.has_value(), i % 3 == 0) << i;
  }
  EXPECT_EQ(told[3].sums->squares, 9) << "of the gate alone";
}

TEST_F(Sums, AreNotMadeInACapture) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_begin_capture(stream, kCuCaptureModeGlobal);
  const Enqueued enqueued = SumList(stream, {Entry(Bad())});
  EXPECT_EQ(enqueued.skip, Skip::kNone);
  const int graph = fake_cuda_end_capture(stream);
  EXPECT_EQ(fake_cuda_graph_nodes(graph), 2u) << "what counts the replays, and the check";
  fake_cuda_replay(graph, stream);
  fake_cuda_run_all();
  EXPECT_EQ(SumLaunches(), 0u);
  EXPECT_EQ(ListLaunches(), 1u);
  const std::vector<Told> told = Poll();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].outcome, Outcome::kBad);
  EXPECT_FALSE(told[0].sums.has_value());
}

// The sums of the first launch are there, and that it has ended is not known.
TEST_F(Sums, OfALaunchThatWasLostAreNull) {
  MakeReady();
  const std::vector<Told> told = LoseTwo(
      [this](void* stream, int n) { return SumList(stream, {Scalar(static_cast<float>(5 + n))}); });
  for (const Told& one : told) EXPECT_FALSE(one.sums.has_value());
}

TEST_F(Sums, OfAListOfNoElementAreNotMade) {
  MakeReady();
  EXPECT_EQ(SumList(nullptr, {Entry(Tensor({}))}, {Scalar(3)}).skip, Skip::kNothingToCheck);
}

}  // namespace
}  // namespace nanwatch::device
