// SPDX-License-Identifier: Apache-2.0
// What is in a tensor that was found bad. Memory is an array here: these functions know no torch.
#include "shim/observe/torch/tensor_stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <vector>

namespace nanwatch {
namespace {

using wire::ElementType;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

// A row of numbers.
template <typename T>
class Row {
 public:
  Row(ElementType type, std::vector<T> values)
      : type_(type), values_(std::move(values)), size_(static_cast<int64_t>(values_.size())) {}
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;
  [[nodiscard]] TensorView View() const {
    return {values_.data(), type_, 1, &size_, &stride_, size_};
  }

 private:
  ElementType type_;
  std::vector<T> values_;
  int64_t size_;
  int64_t stride_ = 1;
};
Row<float> Floats(std::vector<float> values) { return {ElementType::kFloat32, std::move(values)}; }

TEST(TensorStats, AreCountedAndEverythingElseIsEmpty) {
  const Row<float> row = Floats({1, kNan, kInf, kInf, -kInf, 3});
  wire::TensorStats stats;
  std::memset(&stats, 0xff, sizeof stats);
  FillStats(row.View(), 3, &stats);
  EXPECT_EQ(stats.index, 3);
  EXPECT_EQ(stats.nan, 1u);
  EXPECT_EQ(stats.pos_inf, 2u);
  EXPECT_EQ(stats.neg_inf, 1u);
  EXPECT_EQ(stats.first_bad, 1);
  EXPECT_EQ(stats.finite_max, 3);
  EXPECT_EQ(stats.name, 0u);
  EXPECT_EQ(stats.value, 0u);
  EXPECT_EQ(stats.target, 0);
}

TEST(TensorStats, OfAShapeAloneReadNoMemory) {
  const int64_t sizes[] = {3, 4};
  const int64_t strides[] = {4, 1};
  const TensorView view = {nullptr, ElementType::kFloat32, 2, sizes, strides, 12};
  wire::TensorStats stats;
  FillShapeOnly(view, &stats);
  EXPECT_EQ(stats.ndim, 2);
  EXPECT_EQ(stats.shape[0], 3);
  EXPECT_EQ(stats.shape[1], 4);
  EXPECT_EQ(stats.numel, 12);
  EXPECT_EQ(stats.nan + stats.pos_inf + stats.neg_inf, 0u);
  EXPECT_EQ(stats.first_bad, -1);
}

TEST(TensorStats, OfKindsAloneHaveOneElementOfEach) {
  const wire::TensorStats stats = CountsOf(wire::kHasNan | wire::kHasNegInf);
  EXPECT_EQ(stats.nan, 1u);
  EXPECT_EQ(stats.pos_inf, 0u);
  EXPECT_EQ(stats.neg_inf, 1u);
  EXPECT_EQ(stats.first_bad, -1) << "nobody knows where";
}

TEST(ReadNumber, GivesTheOneNumberAsItIs) {
  for (const float value : {0.0f, -2.5f, 65504.0f, kInf, -kInf, 1e-40f}) {
    const Row<float> row = Floats({value});
    double number = 7;
    ASSERT_TRUE(ReadNumber(row.View(), &number));
    EXPECT_EQ(number, value);
  }
  const Row<float> nan = Floats({kNan});
  double number = 7;
  ASSERT_TRUE(ReadNumber(nan.View(), &number));
  EXPECT_TRUE(std::isnan(number));
}

TEST(ReadNumber, GivesNoneWhereThereAreSeveralOrNone) {
  double number = 7;
  const Row<float> two = Floats({1, 2});
  EXPECT_FALSE(ReadNumber(two.View(), &number));
  const Row<float> none = Floats({});
  EXPECT_FALSE(ReadNumber(none.View(), &number));
  EXPECT_EQ(number, 7);
}

TEST(CountBad, CountsElementsAndNamesTheirKinds) {
  BadEntry entry;
  const Row<float> row = Floats({kInf, 1, kNan, kNan});
  CountBad(row.View(), &entry);
  EXPECT_EQ(entry.elements, 3u);
  EXPECT_EQ(entry.kinds, wire::kHasNan | wire::kHasPosInf);
  const Row<float> clean = Floats({1, 2});
  CountBad(clean.View(), &entry);
  EXPECT_EQ(entry.elements, 0u);
  EXPECT_EQ(entry.kinds, 0);
}

TEST(AllBad, NeedsEveryElement) {
  EXPECT_TRUE(IsAllBad(Floats({kNan, kInf, -kInf}).View()));
  EXPECT_FALSE(IsAllBad(Floats({kNan, kInf, 1}).View()));
  EXPECT_FALSE(IsAllBad(Floats({1, 2}).View()));
}

TEST(AllNan, NeedsEveryElementToBeOne) {
  EXPECT_TRUE(IsAllNan(Floats({kNan, kNan}).View()));
  EXPECT_FALSE(IsAllNan(Floats({kNan, kInf}).View()));
  EXPECT_FALSE(IsAllNan(Floats({kNan, 1}).View()));
  EXPECT_FALSE(IsAllNan(Floats({kInf, kInf}).View()));
}

TEST(AllBad, IsAskedOfWhatWasCountedWhereTheMemoryIsOutOfReach) {
  wire::TensorStats counted{};
  counted.element_type = static_cast<uint8_t>(ElementType::kFloat32);
  counted.ndim = 1;
  counted.shape[0] = counted.numel = 5;
  counted.nan = 5;
  const int64_t size = 5;
  const int64_t stride = 1;
  TensorView view = {nullptr, ElementType::kFloat32, 1, &size, &stride, 5, &counted};
  EXPECT_TRUE(IsAllNan(view));
  counted.nan = 4;
  EXPECT_FALSE(IsAllBad(view));
}

}  // namespace
}  // namespace nanwatch
