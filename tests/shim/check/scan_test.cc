// SPDX-License-Identifier: Apache-2.0
#include "shim/check/scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/property/check/hostile_float_environment.h"

namespace nanwatch {
namespace {

using enum wire::ElementType;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A row of elements, and what the slow path says of them.
template <class Element>
wire::TensorStats Count(wire::ElementType type, const std::vector<Element>& elements) {
  const auto size = static_cast<int64_t>(elements.size());
  const int64_t stride = 1;
  wire::TensorStats stats = {};
  CountNonFinite({elements.data(), type, 1, &size, &stride, size}, &stats);
  return stats;
}

TEST(InitScan, TakesTheNamedLevelOrTheBestWhenItCannot) {
  const std::string best = InitScan(nullptr);
  EXPECT_EQ(InitScan("scalar"), std::string("scalar"));
  EXPECT_EQ(InitScan("no such level"), best);
  EXPECT_EQ(InitScan(best.c_str()), best);
}

TEST(Scan, FindsNothingWhereThereIsNothingToRead) {
  const float nan = static_cast<float>(kNan);
  EXPECT_FALSE(HasNonFinite(kFloat32, &nan, 0));
  EXPECT_FALSE(HasNonFinite(kFloat32, nullptr, 0));
  EXPECT_FALSE(HasNonFinite(kNone, &nan, 1));
  EXPECT_FALSE(HasNonFinite(static_cast<wire::ElementType>(200), &nan, 1));
  const int64_t sizes[] = {2, 2}, strides[] = {2, 1};
  const TensorView views[] = {{nullptr, kFloat32, 2, sizes, strides, 4},
                              {&nan, kNone, 2, sizes, strides, 4},
                              {&nan, static_cast<wire::ElementType>(200), 2, sizes, strides, 4}};
  for (const TensorView& view : views) {
    EXPECT_FALSE(HasNonFinite(view));
    EXPECT_EQ(NonFiniteKinds(view), 0);
    wire::TensorStats stats = {};
    CountNonFinite(view, &stats);
    EXPECT_EQ(stats.first_bad, -1);
    EXPECT_EQ(stats.nan + stats.pos_inf + stats.neg_inf, 0U);
  }
}

double Largest(wire::ElementType type, const void* data, size_t count) {
  return LargestValue(Look(type, data, count), type);
}

TEST(Look, TellsTheLargestMagnitudeOrThatOfASample) {
  for (const char* level : {"scalar", "avx2", "avx512"}) {
    if (InitScan(level) != std::string(level)) continue;
    SCOPED_TRACE(level);
    // float16: 3, -48, 0.5
    const uint16_t half[] = {0x4200, 0xd200, 0x3800};
    EXPECT_EQ(Largest(kFloat16, half, 3), 48);
    const uint8_t e4m3[] = {0x38, 0xc8, 0x00};  // 1, -4
    EXPECT_EQ(Largest(kFloat8E4M3Fn, e4m3, 3), 4);
    const uint8_t exponents[] = {127, 130};  // 1, 8
    EXPECT_EQ(Largest(kFloat8E8M0Fnu, exponents, 2), 8);
    EXPECT_EQ(Look(kFloat8E5M2Fnuz, e4m3, 3).kind, Magnitude::Kind::kNone);
    EXPECT_EQ(Look(kFloat32, half, 0).kind, Magnitude::Kind::kNone);
    const double wide[] = {-1e300, 2, 3};
    EXPECT_NEAR(Largest(kFloat64, wide, 3) / 1e300, 1, 1e-5);
    for (const size_t count : {7U, 500U, 512U, 1000U, 20000U, 700001U}) {
      std::vector<float> elements(count, 0.5F);
      elements[count / 2] = -3e38F;
      const Magnitude seen = Look(kFloat32, elements.data(), count);
      const double told = LargestValue(seen, kFloat32);
      if (seen.kind == Magnitude::Kind::kLargest) {
        EXPECT_EQ(told, 3e38F) << count;
      } else {
        EXPECT_EQ(seen.kind, Magnitude::Kind::kAtLeast) << count;
        EXPECT_GE(count, 512U);
        EXPECT_TRUE(told == 0.5 || told == 3e38F) << told;
      }
      elements[count - 1] = std::numeric_limits<float>::infinity();
      EXPECT_TRUE(Look(kFloat32, elements.data(), count).IsNonFinite()) << count;
    }
  }
  (void)InitScan(nullptr);
}

// The sample moves over the columns, however long the rows are.
TEST(Look, OfALongRunSeesAColumnThatGrows) {
  for (const char* level : {"scalar", "avx2", "avx512"}) {
    if (InitScan(level) != std::string(level)) continue;
    SCOPED_TRACE(level);
    for (const size_t width : {64U, 768U, 1024U, 4096U}) {
      constexpr size_t kRows = 2048;
      std::vector<float> elements(kRows * width, 0.5F);
      for (size_t row = 0; row < kRows; ++row) elements[row * width + width / 3] = 1000;
      EXPECT_EQ(Largest(kFloat32, elements.data(), elements.size()), 1000) << width;
    }
  }
  (void)InitScan(nullptr);
}

TEST(Look, OfRowsTakesTheLargestOfThem) {
  std::vector<uint16_t> elements(64, 0x3c00);  // float16 1
  elements[40] = 0x4900;                       // 10
  elements[63] = 0x7c00;                       // Inf, which no row shows
  const int64_t sizes[] = {8, 7}, strides[] = {8, 1};
  const TensorView view{elements.data(), kFloat16, 2, sizes, strides, 56};
  EXPECT_EQ(LargestValue(Look(view), kFloat16), 10);
}

TEST(Count, OfAnExpandedTensorIsOfTheElementsItShows) {
  const float elements[] = {1, static_cast<float>(kNan), 3};
  const int64_t sizes[] = {100, 3, 7}, strides[] = {0, 1, 0};
  wire::TensorStats stats = {};
  CountNonFinite({elements, kFloat32, 3, sizes, strides, 2100}, &stats);
  EXPECT_EQ(stats.numel, 2100);
  EXPECT_EQ(stats.nan, 700U);
  EXPECT_EQ(stats.first_bad, 7);
  EXPECT_EQ(stats.finite_mean, 2);
}

TEST(Count, OfAComplexElementIsOneForEachKindInItsParts) {
  using Complex = std::complex<double>;
  const auto stats = Count<Complex>(
      kComplex128,
      {Complex(1, -4), Complex(kNan, kNan), Complex(kNan, kInfinity), Complex(5, -kInfinity)});
  EXPECT_EQ(stats.nan, 2U);
  EXPECT_EQ(stats.pos_inf, 1U);
  EXPECT_EQ(stats.neg_inf, 1U);
  EXPECT_EQ(stats.first_bad, 1);
  // The 5 belongs to an element that is not finite.
  EXPECT_EQ(stats.finite_min, -4);
  EXPECT_EQ(stats.finite_max, 1);
  EXPECT_EQ(stats.finite_mean, -1.5);
}

TEST(Count, GivesTheMeanOfNumbersWhoseSumIsTooLarge) {
  const double largest = std::numeric_limits<double>::max();
  std::vector<double> elements(1000, largest);
  elements.push_back(kNan);
  EXPECT_EQ(Count(kFloat64, elements).finite_mean, largest);
  elements.assign(999, largest);
  elements.insert(elements.end(), 999, -largest);
  EXPECT_NEAR(Count(kFloat64, elements).finite_mean, 0, largest * 1e-12);
  elements.assign(4, largest / 2);
  elements.push_back(kInfinity);
  EXPECT_DOUBLE_EQ(Count(kFloat64, elements).finite_mean, largest / 2);
}

TEST(Look, LeavesTheJobsFloatingPointModesAndFlagsAsTheyWere) {
  const HostileFloatEnvironment environment;
  std::fenv_t before, after;
  std::fegetenv(&before);
  std::vector<float> elements(5000, 0.1F);
  elements[7] = std::numeric_limits<float>::denorm_min();
  EXPECT_LT(Largest(kFloat32, elements.data(), elements.size()), 8);
  elements[9] = std::numeric_limits<float>::max();
  EXPECT_EQ(Largest(kFloat32, elements.data(), elements.size()), elements[9]);
  std::fegetenv(&after);
  EXPECT_EQ(std::memcmp(&before, &after, sizeof(before)), 0);
}

TEST(Count, SeesSubnormalsWhereTheJobHasSwitchedThemOff) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const double tinier = std::numeric_limits<double>::denorm_min();
  wire::TensorStats single = {}, wide = {};
  {
    const HostileFloatEnvironment environment;
    single = Count<float>(kFloat32, {tiny, tiny, std::numeric_limits<float>::infinity()});
    wide = Count<double>(kFloat64, {tinier, tinier, kNan});
  }
  EXPECT_EQ(single.finite_min, double{tiny});
  EXPECT_EQ(single.finite_mean, double{tiny});
  EXPECT_EQ(wide.finite_max, tinier);
  EXPECT_EQ(wide.finite_mean, tinier);
}

TEST(Count, LeavesTheJobsFloatingPointModesAndFlagsAsTheyWere) {
  const HostileFloatEnvironment environment;
  std::feraiseexcept(FE_INEXACT);
  std::fenv_t before, after;
  std::fegetenv(&before);
  (void)Count<double>(
      kFloat64, {std::numeric_limits<double>::max(), std::numeric_limits<double>::max(), 0.1});
  std::fegetenv(&after);
  EXPECT_EQ(std::memcmp(&before, &after, sizeof(before)), 0);
}

TEST(Count, LeavesTheFieldsOfTheCallerAlone) {
  wire::TensorStats stats = {};
  stats.index = 3;
  stats.target = 2;
  stats.name = 77;
  stats.value = 99;
  const float element = 1;
  CountNonFinite({&element, kFloat32, 0, nullptr, nullptr, 1}, &stats);
  EXPECT_EQ(stats.index, 3);
  EXPECT_EQ(stats.target, 2);
  EXPECT_EQ(stats.name, 77U);
  EXPECT_EQ(stats.value, 99U);
  EXPECT_EQ(stats.ndim, 0);
  EXPECT_EQ(stats.finite_min, 1);
}

}  // namespace
}  // namespace nanwatch
