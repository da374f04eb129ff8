// SPDX-License-Identifier: Apache-2.0
// Runs a property for every instruction set this machine has and every element type.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "shim/check/scan.h"
#include "tests/property/check/hostile_float_environment.h"
#include "tests/property/check/reference.h"

namespace nanwatch {

// The instruction sets to try, and what their tests' names begin with. Each program links its own.
std::vector<const char*> TestedLevels();
std::string TestedLevelPrefix();

class LevelAndType : public testing::TestWithParam<std::tuple<const char*, wire::ElementType>> {
 protected:
  void SetUp() override {
    const char* level = std::get<0>(GetParam());
    if (std::string(InitScan(level)) != level) GTEST_SKIP() << "this processor has no " << level;
  }
  void TearDown() override { InitScan(nullptr); }

  [[nodiscard]] static wire::ElementType type() { return std::get<1>(GetParam()); }
  [[nodiscard]] static size_t part_bytes() {
    return static_cast<size_t>(reference::PartBytes(type()));
  }
  [[nodiscard]] static size_t element_bytes() { return ElementBytes(type()); }

  // Finite parts: mostly any word that is finite, now and then a delicate one.
  void FillFinite(char* at, size_t bytes) {
    if (delicate_.empty()) delicate_ = reference::DelicateFiniteWords(type());
    for (size_t done = 0; done < bytes; done += part_bytes()) {
      uint64_t word = random_();
      if (part_bytes() < 8) word &= (uint64_t{1} << (8 * part_bytes())) - 1;
      const bool is_finite = reference::Decode(type(), word).kind == reference::Kind::kFinite;
      if (!is_finite || random_() % 8 == 0) word = delicate_[random_() % delicate_.size()];
      std::memcpy(at + done, &word, part_bytes());
    }
  }

  // Every byte pattern that a careless read would notice: bad parts throughout.
  void FillBad(char* at, size_t bytes) {
    if (bytes == 0) return;
    const uint64_t bad = reference::BadWords(type())[0];
    std::memcpy(at, &bad, part_bytes());
    for (size_t done = part_bytes(); done < bytes; done *= 2) {
      std::memcpy(at + done, at, std::min(done, bytes - done));
    }
  }

  uint64_t AnyBadWord() {
    const auto bad = reference::BadWords(type());
    return bad[random_() % bad.size()];
  }

  std::mt19937_64 random_{20240607};
  std::vector<uint64_t> delicate_;
};

// The functions under test, called by a job whose floating-point modes are as unhelpful as can be.
inline bool ScanInHostileJob(const TensorView& view) {
  const HostileFloatEnvironment environment;
  return HasNonFinite(view);
}
inline uint8_t KindsInHostileJob(const TensorView& view) {
  const HostileFloatEnvironment environment;
  return NonFiniteKinds(view);
}
inline wire::TensorStats CountInHostileJob(const TensorView& view) {
  wire::TensorStats stats = {};
  const HostileFloatEnvironment environment;
  CountNonFinite(view, &stats);
  return stats;
}

// All three answers about `view` against the reference.
inline void ExpectAsReference(const TensorView& view, const std::string& what) {
  SCOPED_TRACE(what);
  const reference::Expected expected = reference::Look(view);
  EXPECT_EQ(ScanInHostileJob(view), expected.kinds != 0);
  const bool has_nan = (expected.kinds & wire::kHasNan) != 0;
  EXPECT_EQ(KindsInHostileJob(view), has_nan ? wire::kHasNan : expected.kinds);
  const wire::TensorStats got = CountInHostileJob(view);
  const wire::TensorStats& want = expected.stats;
  EXPECT_EQ(got.element_type, want.element_type);
  EXPECT_EQ(got.ndim, want.ndim);
  EXPECT_EQ(got.numel, want.numel);
  EXPECT_EQ(got.nan, want.nan);
  EXPECT_EQ(got.pos_inf, want.pos_inf);
  EXPECT_EQ(got.neg_inf, want.neg_inf);
  EXPECT_EQ(got.first_bad, want.first_bad);
  EXPECT_EQ(got.finite_min, want.finite_min);
  EXPECT_EQ(got.finite_max, want.finite_max);
  const double largest = std::max(std::abs(want.finite_min), std::abs(want.finite_max));
  EXPECT_NEAR(got.finite_mean, want.finite_mean, largest * 1e-12);
  for (int d = 0; d < wire::kShapeDimsMax; ++d) EXPECT_EQ(got.shape[d], want.shape[d]);
}

inline std::string LevelAndTypeName(
    const testing::TestParamInfo<std::tuple<const char*, wire::ElementType>>& info) {
  return TestedLevelPrefix() + std::get<0>(info.param) + "_" +
         reference::Name(std::get<1>(info.param));
}

}  // namespace nanwatch

#define NANWATCH_EVERY_LEVEL_AND_TYPE(suite)                                          \
  INSTANTIATE_TEST_SUITE_P(Every, suite,                                              \
                           testing::Combine(testing::ValuesIn(TestedLevels()),        \
                                            testing::ValuesIn(reference::kAllTypes)), \
                           LevelAndTypeName)
