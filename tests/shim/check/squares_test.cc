#include "shim/check/squares.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace nanwatch {
namespace {

using wire::ElementType;

TEST(Squares, AgreeWithASlowSumForEveryLengthAroundABlock) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const size_t count : {0, 1, 15, 16, 17, 1023, 1024, 1025, 5000}) {
    std::vector<float> values(count + 1);
    double slow = 0;
    for (size_t i = 0; i < count; ++i) {
      values[i] = normal(random);
      slow += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    Squares squares;
    ASSERT_TRUE(SumOfSquares(ElementType::kFloat32, values.data(), count, &squares));
    EXPECT_NEAR(squares.sum, slow, 1e-5 * slow) << count;
  }
}

TEST(Squares, OfFiniteNumbersTooLargeForFloatAreFinite) {
  const std::vector<float> values(40, 3e30f);
  Squares squares;
  ASSERT_TRUE(SumOfSquares(ElementType::kFloat32, values.data(), values.size(), &squares));
  EXPECT_NEAR(squares.sum / (40 * 9e60), 1, 1e-5);
}

TEST(Squares, ReadHalfPrecision) {
  const uint16_t halves[] = {0x3C00, 0xC000, 0x0001, 0x7BFF};  // 1, -2, 2^-24, 65504
  const uint16_t brain[] = {0x3F80, 0xC000, 0x0000, 0x4080};   // 1, -2, 0, 4
  Squares squares;
  ASSERT_TRUE(SumOfSquares(ElementType::kFloat16, halves, 4, &squares));
  EXPECT_NEAR(squares.sum, 5 + 65504.0 * 65504.0, 1);
  ASSERT_TRUE(SumOfSquares(ElementType::kBFloat16, brain, 4, &squares));
  EXPECT_EQ(squares.sum, 21);
}

TEST(Squares, TellZeroFromWhatIsTooSmallToBeSquared) {
  std::vector<float> values(100, 0.0f);
  values[7] = -0.0f;
  Squares squares;
  ASSERT_TRUE(SumOfSquares(ElementType::kFloat32, values.data(), values.size(), &squares));
  EXPECT_TRUE(squares.all_zero);
  values[99] = 1e-30f;
  ASSERT_TRUE(SumOfSquares(ElementType::kFloat32, values.data(), values.size(), &squares));
  EXPECT_FALSE(squares.all_zero);
}

TEST(Squares, OfOtherTypesAreNotTaken) {
  const uint64_t words[2] = {};
  Squares squares;
  EXPECT_FALSE(SumOfSquares(ElementType::kComplex64, words, 1, &squares));
  EXPECT_FALSE(SumOfSquares(ElementType::kNone, words, 1, &squares));
}

}  // namespace
}  // namespace nanwatch
