// SPDX-License-Identifier: Apache-2.0
// What the answer to a list's launch says of one of its tensors.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "shim/observe/gpu/gpu_counts.h"

namespace nanwatch {
namespace {

// A list whose entry `i` is bad, and how it was counted if it was.
class Listed {
 public:
  void Bad(uint32_t i) { list_.bad[i / 32] |= 1u << i % 32; }
  void Counted(uint8_t i, uint8_t kinds, uint64_t nan) {
    Bad(i);
    list_.entry[list_.counted] = i;
    list_.kinds[list_.counted] = kinds;
    list_.counts[list_.counted].nan = nan;
    ++list_.counted;
  }
  [[nodiscard]] ListedEntry Find(uint32_t i) const { return FindListed(list_, i); }

 private:
  device::ListResult list_{};
};

TEST(ListedEntry, IsCleanWhereItsBitIsNotSet) {
  Listed list;
  list.Counted(3, wire::kHasNan, 5);
  EXPECT_EQ(list.Find(2).kinds, 0);
  EXPECT_FALSE(list.Find(2).counted);
  EXPECT_EQ(list.Find(35).kinds, 0) << "the same bit of the next word";
}

TEST(ListedEntry, HasItsOwnCountsAmongThoseThatWereCounted) {
  Listed list;
  list.Counted(3, wire::kHasNan, 5);
  list.Counted(200, wire::kHasNan | wire::kHasPosInf, 7);
  const ListedEntry found = list.Find(200);
  EXPECT_TRUE(found.counted);
  EXPECT_EQ(found.kinds, wire::kHasNan | wire::kHasPosInf);
  EXPECT_EQ(found.counts.nan, 7u);
  EXPECT_EQ(list.Find(3).counts.nan, 5u);
}

TEST(ListedEntry, ThatWasNotCountedIsTakenForWhatTheOthersHold) {
  Listed list;
  list.Counted(3, wire::kHasPosInf, 0);
  list.Counted(4, wire::kHasNegInf, 0);
  list.Bad(90);
  const ListedEntry found = list.Find(90);
  EXPECT_FALSE(found.counted);
  EXPECT_EQ(found.kinds, wire::kHasPosInf | wire::kHasNegInf);
  EXPECT_EQ(found.counts.nan, 0u);
}

TEST(ListedEntry, IsANanWhereNothingWasCounted) {
  Listed list;
  list.Bad(0);
  EXPECT_EQ(list.Find(0).kinds, wire::kHasNan);
  EXPECT_FALSE(list.Find(0).counted);
}

TEST(CountsOfAList, SayNothingOfFiniteElementsWhereThereAreNone) {
  device::TensorCounts counts{};
  counts.nan = 4;
  counts.first_bad = 1;
  counts.finite_min = HUGE_VAL;
  counts.finite_max = -HUGE_VAL;
  counts.finite_mean = 9;
  wire::TensorStats stats{};
  FillCounts(counts, wire::kHasNan, /*brief=*/false, &stats);
  EXPECT_EQ(stats.nan, 4u);
  EXPECT_EQ(stats.first_bad, 1);
  EXPECT_EQ(stats.finite_min, 0);
  EXPECT_EQ(stats.finite_max, 0);
  EXPECT_EQ(stats.finite_mean, 0);
}

TEST(CountsOfAList, OfACleanTensorKeepTheFirstBadIndexThatWasThere) {
  device::TensorCounts counts{};
  counts.finite_min = -1;
  counts.finite_max = 2;
  counts.first_bad = 77;
  wire::TensorStats stats{};
  stats.first_bad = -1;
  FillCounts(counts, 0, /*brief=*/true, &stats);
  EXPECT_EQ(stats.first_bad, -1);
  EXPECT_EQ(stats.finite_min, -1);
  EXPECT_EQ(stats.finite_max, 2);
}

TEST(CountsOfAList, OfATensorOfEightDimensionsInReverseOrderFindTheIndex) {
  // Each dimension has two elements; the first one is the innermost.
  std::vector<int64_t> sizes(8, 2);
  std::vector<int64_t> strides(8);
  for (size_t d = 0; d < 8; ++d) strides[d] = int64_t{1} << d;
  const TensorView view = {&sizes, wire::ElementType::kFloat32, 8, sizes.data(), strides.data(),
                           256};
  ASSERT_TRUE(IsOneRun(view, /*in_any_order=*/true));
  ASSERT_FALSE(IsOneRun(view, /*in_any_order=*/false));
  for (int64_t place = 0; place < 256; ++place) {
    int64_t reversed = 0;
    for (int bit = 0; bit < 8; ++bit) reversed |= (place >> bit & 1) << (7 - bit);
    wire::TensorStats stats{};
    stats.nan = 1;
    stats.first_bad = place;
    PlaceToIndex(view, &stats);
    ASSERT_EQ(stats.first_bad, reversed);
  }
}

}  // namespace
}  // namespace nanwatch
