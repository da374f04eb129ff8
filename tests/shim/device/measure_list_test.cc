// SPDX-License-Identifier: Apache-2.0
// Measures of lists: of which launches they are told, and that they are that launch's own.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/shim/device/checker_fixture.h"

namespace nanwatch::device {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using Outcome = Finished::Outcome;

class Measures : public CheckerTest {
 protected:
  Enqueued MeasureList(void* stream, const std::vector<ListEntry>& list) {
    return checker_->EnqueueList({.stream = static_cast<CuStream>(stream),
                                  .device = 0,
                                  .gate = list,
                                  .others = {},
                                  .reports = false,
                                  .sums = false,
                                  .measures = true});
  }
  ListEntry Scalar(float value) { return Entry(Tensor({value})); }
};

TEST_F(Measures, AreToldOfEachEntry) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  MeasureList(stream, {Entry(Tensor({3, -4})), Entry(Tensor({0, 0, 1})), Scalar(kInf)});
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].outcome, Outcome::kClean) << "nothing is looked for";
  EXPECT_FALSE(told[0].sums.has_value());
  ASSERT_THAT(told[0].measures, SizeIs(kMeasuredMax));
  EXPECT_EQ(told[0].measures[0].sum, -1);
  EXPECT_EQ(told[0].measures[0].squares, 25);
  EXPECT_EQ(told[0].measures[0].largest, 4);
  EXPECT_EQ(told[0].measures[1].zeros, 2u);
  EXPECT_FALSE(told[0].measures[2].IsFinite());
  EXPECT_EQ(MeasureLaunches(), 1u);
}

TEST_F(Measures, OfALongListAreToldByEachLaunchOfItsOwnEntries) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  std::vector<ListEntry> list(2 * kMeasuredMax + 3, Scalar(1));
  list[kMeasuredMax] = Scalar(2);
  list.back() = Scalar(3);
  EXPECT_EQ(MeasureList(stream, list).launches, 3u);
  const std::vector<Told> told = RunAndPoll({stream});
  ASSERT_THAT(told, SizeIs(3));
  EXPECT_EQ(told[1].measures[0].sum, 2);
  EXPECT_EQ(told[2].measures[2].sum, 3);
}

// All slots hold one kind of answer, then the other, then that of checks.
TEST_F(Measures, AreNotTakenForSumsNorSumsForMeasures) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < 40; ++i) {
      if (round % 3 == 0) MeasureList(stream, {Scalar(static_cast<float>(i + 1))});
      if (round % 3 == 1) {
        checker_->EnqueueList({.stream = static_cast<CuStream>(stream),
                               .device = 0,
                               .gate = std::vector<ListEntry>{Scalar(7)},
                               .others = {},
                               .reports = false,
                               .sums = true});
      }
      if (round % 3 == 2) CheckOne(stream, i % 2 == 0 ? Bad() : Clean());
    }
    const std::vector<Told> told = RunAndPoll({stream});
    ASSERT_THAT(told, SizeIs(40));
    for (int i = 0; i < 40; ++i) {
      const Told& one = told[static_cast<size_t>(i)];
      EXPECT_EQ(one.measures.empty(), round % 3 != 0);
      EXPECT_EQ(one.sums.has_value(), round % 3 == 1);
      if (round % 3 == 0) {
        EXPECT_EQ(one.measures[0].sum, i + 1);
      }
    }
  }
}

// Zeros are there at first.
TEST_F(Measures, OfSamplesAreAgainstTheLookBefore) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  std::vector<ListEntry> list;
  std::vector<SampleSpan> samples;
  for (uint32_t i = 0; i < kMeasuredMax + 2; ++i) {
    list.push_back(Entry(Tensor({3, 4})));
    samples.push_back({2 * i, 2});
  }
  const auto compare = [&] {
    const Enqueued enqueued = checker_->EnqueueList({.stream = static_cast<CuStream>(stream),
                                                     .device = 0,
                                                     .gate = list,
                                                     .others = {},
                                                     .reports = false,
                                                     .sums = false,
                                                     .measures = true,
                                                     .samples = samples});
    EXPECT_EQ(enqueued.launches, 2u);
    return RunAndPoll({stream});
  };
  const std::vector<Told> first = compare();
  ASSERT_THAT(first, SizeIs(2));
  EXPECT_EQ(first[1].measures[1].sum, 0);
  EXPECT_EQ(first[1].measures[1].squares, 25);
  values_.back()[1] = 6;
  const std::vector<Told> second = compare();
  ASSERT_THAT(second, SizeIs(2));
  EXPECT_EQ(second[1].measures[1].sum, 25);
  EXPECT_EQ(second[1].measures[1].squares, 4);
  EXPECT_EQ(second[0].measures[0].squares, 0);
}

TEST_F(Measures, AreNotMadeInACapture) {
  MakeReady();
  void* stream = fake_cuda_new_stream(0);
  fake_cuda_begin_capture(stream, kCuCaptureModeGlobal);
  EXPECT_EQ(MeasureList(stream, {Entry(Clean())}).skip, Skip::kNothingToCheck);
  EXPECT_EQ(fake_cuda_graph_nodes(fake_cuda_end_capture(stream)), 0u);
  EXPECT_EQ(MeasureLaunches(), 0u);
}

// The measures of the first launch are there, and that it has ended is not known.
TEST_F(Measures, OfALaunchThatWasLostAreNull) {
  MakeReady();
  const std::vector<Told> told = LoseTwo([this](void* stream, int n) {
    return MeasureList(stream, {Scalar(static_cast<float>(5 + n))});
  });
  for (const Told& one : told) EXPECT_THAT(one.measures, IsEmpty());
}

}  // namespace
}  // namespace nanwatch::device
