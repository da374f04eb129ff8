// SPDX-License-Identifier: Apache-2.0
// Complex elements, both of whose parts may be bad in ways of their own.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

using Complex = std::complex<float>;

bool AllBad(const std::vector<Complex>& values) {
  const auto size = static_cast<int64_t>(values.size());
  const int64_t stride = 1;
  return IsAllBad({values.data(), wire::ElementType::kComplex64, 1, &size, &stride, size});
}

constexpr float kInfinite = std::numeric_limits<float>::infinity();
const Complex kBothBad = {std::nanf(""), kInfinite};

TEST(ComplexAllBad, OneElementWithTwoBadPartsDoesNotSpeakForAnother) {
  EXPECT_FALSE(AllBad({kBothBad, {1, 2}}));
}

TEST(ComplexAllBad, ElementsWithTwoBadPartsEachAreAllBad) {
  EXPECT_TRUE(AllBad({kBothBad, kBothBad}));
}

}  // namespace
}  // namespace nanwatch
