// SPDX-License-Identifier: Apache-2.0
#include "shim/check/squares.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "shim/check/parallel.h"
#include "tests/fakes/three_threads.h"

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

// The job's modes and flags: an overflow is looked for by the job, and traps.
TEST(Squares, NeitherTrapNorLeaveFlags) {
  std::vector<float> values(3000, 3e30f);
  values[5] = 1e-30f;
  std::feclearexcept(FE_ALL_EXCEPT);
  const int trapped = feenableexcept(FE_OVERFLOW | FE_INVALID | FE_DIVBYZERO | FE_UNDERFLOW);
  Squares squares;
  const bool read = SumOfSquares(ElementType::kFloat32, values.data(), values.size(), &squares);
  const int flags = std::fetestexcept(FE_ALL_EXCEPT);
  const int traps = fedisableexcept(FE_ALL_EXCEPT);
  ASSERT_TRUE(read);
  EXPECT_EQ(flags, 0);
  EXPECT_EQ(traps, FE_OVERFLOW | FE_INVALID | FE_DIVBYZERO | FE_UNDERFLOW);
  if (trapped > 0) feenableexcept(trapped);
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

TEST(Squares, OfLargeMemoryAreTheSameInAnyNumberOfThreads) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  // The last more than there are parts for.
  for (const size_t bytes :
       {kParallelBytesMin, kParallelBytesMin + 12345 * 4, 300 * kParallelBlockBytes + 4}) {
    std::vector<float> values(bytes / 4);
    double slow = 0;
    for (float& value : values) {
      value = normal(random);
      slow += static_cast<double>(value) * static_cast<double>(value);
    }
    Squares alone, together;
    ASSERT_TRUE(SumOfSquares(ElementType::kFloat32, values.data(), values.size(), &alone));
    EXPECT_NEAR(alone.sum, slow, 1e-5 * slow);
    SetParallelFor(RunInThreeThreads);
    g_parts_run = 0;
    const bool read = SumOfSquares(ElementType::kFloat32, values.data(), values.size(), &together);
    const bool below = SumOfSquares(ElementType::kFloat32, values.data(), 1000, &alone);
    SetParallelFor(nullptr);
    ASSERT_TRUE(read && below);
    EXPECT_EQ(g_parts_run, 3);
    ASSERT_TRUE(SumOfSquares(ElementType::kFloat32, values.data(), values.size(), &alone));
    EXPECT_EQ(together.sum, alone.sum);
  }
}

TEST(Squares, OfOtherTypesAreNotTaken) {
  const uint64_t words[2] = {};
  Squares squares;
  EXPECT_FALSE(SumOfSquares(ElementType::kComplex64, words, 1, &squares));
  EXPECT_FALSE(SumOfSquares(ElementType::kNone, words, 1, &squares));
}

}  // namespace
}  // namespace nanwatch
