// SPDX-License-Identifier: Apache-2.0
// Which tensors are one run of memory, and what a place in it is as an index.
#include "shim/observe/gpu/gpu_counts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

namespace nanwatch {
namespace {

struct Layout {
  std::vector<int64_t> sizes, strides;

  [[nodiscard]] int64_t Numel() const {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  }
  [[nodiscard]] TensorView View() const {
    return {this,
            wire::ElementType::kFloat32,
            static_cast<int32_t>(sizes.size()),
            sizes.data(),
            strides.data(),
            Numel()};
  }
  // Of the element with this row-major index.
  [[nodiscard]] int64_t IndexOf(int64_t row) const {
    int64_t place = 0;
    for (size_t d = sizes.size(); d-- > 0; row /= sizes[d]) place += row % sizes[d] * strides[d];
    return place;
  }
  // By definition: every place up to the number of elements is one's, and only one's.
  [[nodiscard]] bool IsOneRun() const {
    std::set<int64_t> places;
    for (int64_t row = 0; row < Numel(); ++row) places.insert(IndexOf(row));
    return static_cast<int64_t>(places.size()) == Numel() &&
           (places.empty() || (*places.begin() == 0 && *places.rbegin() == Numel() - 1));
  }
  [[nodiscard]] bool IsInOrder() const {
    for (int64_t row = 0; row < Numel(); ++row) {
      if (IndexOf(row) != row) return false;
    }
    return true;
  }
};

wire::TensorStats Found(uint64_t nan, int64_t first_bad) {
  wire::TensorStats stats{};
  stats.nan = nan;
  stats.first_bad = first_bad;
  return stats;
}

TEST(OneRun, IsWhatCoversItsMemoryAndNothingElse) {
  int runs = 0;
  int in_order = 0;
  // All shapes of three dimensions of 1 to 3, with all strides up to 9.
  for (int64_t code = 0; code < 27 * 1000; ++code) {
    const int64_t size = code / 1000;
    const Layout layout = {{1 + size % 3, 1 + size / 3 % 3, 1 + size / 9},
                           {code % 10, code / 10 % 10, code / 100 % 10}};
    ASSERT_EQ(IsOneRun(layout.View(), true), layout.IsOneRun()) << code;
    ASSERT_EQ(IsOneRun(layout.View(), false), layout.IsInOrder()) << code;
    runs += layout.IsOneRun();
    in_order += layout.IsInOrder();
  }
  EXPECT_GT(runs, in_order);
  EXPECT_GT(in_order, 100);
  EXPECT_TRUE(IsOneRun(Layout{}.View(), false)) << "a number";
}

TEST(PlaceInMemory, IsTheIndexOfTheOnlyBadElement) {
  const Layout channels_last = {{2, 3, 4, 5}, {60, 1, 15, 3}};
  ASSERT_TRUE(channels_last.IsOneRun());
  for (int64_t row = 0; row < channels_last.Numel(); ++row) {
    wire::TensorStats stats = Found(1, channels_last.IndexOf(row));
    PlaceToIndex(channels_last.View(), &stats);
    ASSERT_EQ(stats.first_bad, row);
  }
}

TEST(PlaceInMemory, IsNoIndexWhereOthersMayComeBefore) {
  const Layout transposed = {{4, 5}, {1, 4}};
  wire::TensorStats two = Found(2, 7);
  PlaceToIndex(transposed.View(), &two);
  EXPECT_EQ(two.first_bad, -1);
  wire::TensorStats all = Found(20, 0);
  PlaceToIndex(transposed.View(), &all);
  EXPECT_EQ(all.first_bad, 0);
  const Layout in_order = {{4, 5}, {5, 1}};
  wire::TensorStats as_it_is = Found(2, 7);
  PlaceToIndex(in_order.View(), &as_it_is);
  EXPECT_EQ(as_it_is.first_bad, 7);
  wire::TensorStats none = Found(3, -1);
  PlaceToIndex(transposed.View(), &none);
  EXPECT_EQ(none.first_bad, -1);
}

TEST(CountsOfAGpu, AreKindsAloneWhereTheySayNothing) {
  device::TensorCounts counts = {0, 5, 0, 3, -1.0, 2.0, 0.5};
  wire::TensorStats stats{};
  FillCounts(counts, wire::kHasPosInf, /*brief=*/false, &stats);
  EXPECT_EQ(stats.pos_inf, 5u);
  EXPECT_EQ(stats.first_bad, 3);
  EXPECT_EQ(stats.finite_max, 2.0);
  stats = {};
  FillCounts(counts, wire::kHasPosInf, /*brief=*/true, &stats);
  EXPECT_EQ(stats.pos_inf, 1u);
  counts = {};
  FillCounts(counts, wire::kHasNan, /*brief=*/false, &stats);
  EXPECT_EQ(stats.nan, 1u);
}

}  // namespace
}  // namespace nanwatch
