// SPDX-License-Identifier: Apache-2.0
#include "shim/check/moments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "shim/check/element_sample.h"

namespace nanwatch {
namespace {

using wire::ElementType;

constexpr size_t kCounts[] = {1, 2, 15, 16, 17, 63, 4096, 4097, 70'001};

float FromHalf(uint16_t half) {
  const int exponent = half >> 10 & 0x1f;
  const int mantissa = half & 0x3ff;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -24)
                              : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}
float FromBrain(uint16_t brain) {
  const uint32_t bits = static_cast<uint32_t>(brain) << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// One by one, as a person would.
void ExpectMoments(ElementType type, const void* data, const std::vector<double>& values) {
  const size_t count = values.size();
  double sum = 0;
  double squares = 0;
  double largest = 0;
  uint64_t zeros = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
    largest = std::max(largest, std::abs(value));
    zeros += value == 0;
  }
  double off = 0;
  const double mean = sum / static_cast<double>(count);
  for (const double value : values) off += (value - mean) * (value - mean);
  const double deviation = count == 1 ? 0 : std::sqrt(off / static_cast<double>(count - 1));
  Moments moments;
  ASSERT_TRUE(MomentsOf(type, data, count, &moments));
  const double slack = 1e-12 * static_cast<double>(count) * largest;
  EXPECT_NEAR(moments.Mean(count), mean, slack) << count;
  EXPECT_NEAR(moments.squares_sum, squares, slack * largest) << count;
  EXPECT_NEAR(moments.StandardDeviation(count), deviation, 1e-7 * deviation + slack) << count;
  EXPECT_EQ(moments.max_abs, largest) << count;
  EXPECT_EQ(moments.zeros, zeros) << count;
}

// Every ninth element is zero, every eighteenth a negative one.
template <typename T>
std::vector<T> Values(size_t count, double mean) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(mean);
  std::vector<T> values;
  for (size_t i = 0; i < count; ++i) {
    values.push_back(i % 9 == 5 ? static_cast<T>(i % 2 == 0 ? -0.0 : 0.0)
                                : static_cast<T>(normal(random)));
  }
  return values;
}

TEST(Moments, AgreeWithASlowReferenceForEveryType) {
  for (const size_t count : kCounts) {
    const auto doubles = Values<double>(count, 3);
    ExpectMoments(ElementType::kFloat64, doubles.data(), doubles);
    const auto floats = Values<float>(count, -0.1);
    ExpectMoments(ElementType::kFloat32, floats.data(), {floats.begin(), floats.end()});
    std::mt19937 random(11);
    std::vector<uint16_t> halves, brains;
    std::vector<double> from_halves, from_brains;
    for (size_t i = 0; i < count; ++i) {
      const auto bits = static_cast<uint16_t>(random());
      halves.push_back(static_cast<uint16_t>((bits & 0x7c00) == 0x7c00 ? bits & 0x83ff : bits));
      brains.push_back(static_cast<uint16_t>(0x3f80 | (bits & 0x807f)));
      if (i % 5 == 3) halves.back() = brains.back() = static_cast<uint16_t>(bits & 0x8000);
      from_halves.push_back(static_cast<double>(FromHalf(halves.back())));
      from_brains.push_back(static_cast<double>(FromBrain(brains.back())));
    }
    ExpectMoments(ElementType::kFloat16, halves.data(), from_halves);
    ExpectMoments(ElementType::kBFloat16, brains.data(), from_brains);
  }
}

TEST(Moments, OfEqualElementsHaveNoDeviation) {
  const std::vector<float> values(1000, 0.1f);
  Moments moments;
  ASSERT_TRUE(MomentsOf(ElementType::kFloat32, values.data(), values.size(), &moments));
  EXPECT_NEAR(moments.StandardDeviation(values.size()), 0, 1e-9);
}

TEST(Moments, CountASubnormalAsWhatItIs) {
  std::vector<float> values(40, 0.0f);
  values[3] = std::numeric_limits<float>::denorm_min();
  values[9] = -0.0f;
  Moments moments;
  ASSERT_TRUE(MomentsOf(ElementType::kFloat32, values.data(), values.size(), &moments));
  EXPECT_EQ(moments.zeros, 39u);
}

TEST(Moments, OfANonFiniteElementAreNotFinite) {
  std::vector<float> values(100, 1.0f);
  values[50] = std::numeric_limits<float>::quiet_NaN();
  Moments moments;
  ASSERT_TRUE(MomentsOf(ElementType::kFloat32, values.data(), values.size(), &moments));
  EXPECT_TRUE(std::isnan(moments.sum) && std::isnan(moments.max_abs));
  for (const uint16_t bad : {0x7c00, 0xfc00, 0x7e00}) {  // Inf, -Inf, NaN
    std::vector<uint16_t> halves(100, 0x3c00);
    halves[99] = bad;
    ASSERT_TRUE(MomentsOf(ElementType::kFloat16, halves.data(), halves.size(), &moments));
    EXPECT_FALSE(std::isfinite(moments.squares_sum)) << bad;
    EXPECT_FALSE(std::isfinite(moments.max_abs)) << bad;
  }
}

TEST(Moments, OfOtherTypesAreNotTaken) {
  const uint64_t words[2] = {};
  Moments moments;
  Change change;
  for (const ElementType type : {ElementType::kComplex64, ElementType::kFloat8E5M2}) {
    EXPECT_FALSE(MomentsOf(type, words, 1, &moments));
    EXPECT_FALSE(ChangeOf(type, words, words, 1, &change));
  }
  for (uint8_t i = 0; i < wire::kElementTypeCount; ++i) {
    const auto type = static_cast<ElementType>(i);
    EXPECT_EQ(HasMoments(type), MomentsOf(type, words, 1, &moments)) << int{i};
  }
}

TEST(Change, IsTheNormOfWhatWasAdded) {
  for (const size_t count : kCounts) {
    const auto before = Values<float>(count, 1);
    std::vector<float> after = before;
    double change = 0;
    double weight = 0;
    for (size_t i = 0; i < count; ++i) {
      after[i] += static_cast<float>(1e-3 * std::sin(static_cast<double>(i)));
      const double added = static_cast<double>(after[i]) - static_cast<double>(before[i]);
      change += added * added;
      weight += static_cast<double>(before[i]) * static_cast<double>(before[i]);
    }
    Change found;
    ASSERT_TRUE(ChangeOf(ElementType::kFloat32, before.data(), after.data(), count, &found));
    EXPECT_NEAR(found.change_squares, change, 1e-9 * change) << count;
    EXPECT_NEAR(found.before_squares, weight, 1e-9 * weight) << count;
  }
  const uint16_t before[] = {0x3c00, 0xc000, 0x0000, 0x3c00, 0x4000};  // 1, -2, 0, 1, 2
  const uint16_t after[] = {0x4000, 0xbc00, 0x0000, 0x3c00, 0x0000};   // 2, -1, 0, 1, 0
  Change found;
  ASSERT_TRUE(ChangeOf(ElementType::kFloat16, before, after, 5, &found));
  EXPECT_EQ(found.change_squares, 6);
  EXPECT_EQ(found.before_squares, 10);
}

TEST(ElementSample, TakesAllOfASmallTensor) {
  const std::vector<uint16_t> values = {1, 2, 3};
  std::vector<uint16_t> sample(16);
  EXPECT_EQ(CopySample(values.data(), 3, 2, 16, reinterpret_cast<unsigned char*>(sample.data())),
            3u);
  EXPECT_EQ(sample[2], 3);
}

TEST(ElementSample, LiesInEveryPartOfALargeOneAndInEveryColumn) {
  constexpr size_t kColumns = 256;
  for (const size_t count : {4097, 64 * 256, 4096 * 256, 1'000'003}) {
    std::vector<uint32_t> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<uint32_t>(i);
    std::vector<uint32_t> sample(4096);
    const size_t taken =
        CopySample(values.data(), count, 4, 4096, reinterpret_cast<unsigned char*>(sample.data()));
    ASSERT_EQ(taken, 4096u);
    std::vector<bool> columns(kColumns);
    for (size_t i = 0; i < taken; ++i) {
      EXPECT_TRUE(i == 0 || sample[i - 1] < sample[i]) << "an element twice";
      EXPECT_EQ(sample[i] / (count / 256), i / 16) << "one run a part";
      columns[sample[i] % kColumns] = true;
    }
    const auto met = std::count(columns.begin(), columns.end(), true);
    EXPECT_GT(met, 250) << count;
  }
}

}  // namespace
}  // namespace nanwatch
