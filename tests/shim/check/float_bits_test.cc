// SPDX-License-Identifier: Apache-2.0
#include "shim/check/float_bits.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/property/check/reference.h"

namespace nanwatch {
namespace {

using enum wire::ElementType;

// Every word of a format of 8 or 16 bits against the written definition.
template <wire::ElementType kType>
void ExpectEveryWordAsDefined() {
  using Format = FormatOf<kType>;
  SCOPED_TRACE(reference::Name(kType));
  for (uint32_t word = 0; word <= Format::kOnes; ++word) {
    const auto bits = static_cast<typename Format::Word>(word);
    const reference::Value want = reference::Decode(kType, word);
    const uint8_t kinds = want.kind == reference::Kind::kNan      ? wire::kHasNan
                          : want.kind == reference::Kind::kPosInf ? wire::kHasPosInf
                          : want.kind == reference::Kind::kNegInf ? wire::kHasNegInf
                                                                  : 0;
    ASSERT_EQ(Format::Kinds(bits), kinds) << std::hex << word;
    ASSERT_EQ(Format::IsNonFinite(bits), kinds != 0) << std::hex << word;
    if (kinds != 0) continue;
    ASSERT_EQ(Format::ToDouble(bits), want.value) << std::hex << word;
    ASSERT_EQ(Format::KeyToDouble(Format::ToKey(bits)), want.value) << std::hex << word;
  }
}

TEST(FloatBits, EveryWordOfTheNarrowFormatsMeansWhatItsDefinitionSays) {
  ExpectEveryWordAsDefined<kFloat16>();
  ExpectEveryWordAsDefined<kBFloat16>();
  ExpectEveryWordAsDefined<kFloat8E5M2>();
  ExpectEveryWordAsDefined<kFloat8E4M3Fn>();
  ExpectEveryWordAsDefined<kFloat8E5M2Fnuz>();
  ExpectEveryWordAsDefined<kFloat8E4M3Fnuz>();
  ExpectEveryWordAsDefined<kFloat8E8M0Fnu>();
}

TEST(FloatBits, WideFormatsAgreeWithTheProcessor) {
  using Float = FormatOf<kFloat32>;
  using Double = FormatOf<kFloat64>;
  // A step that is odd visits every exponent, with changing mantissas.
  for (uint64_t word = 0; word <= 0xffffffff; word += 65'521) {
    const auto bits = static_cast<uint32_t>(word);
    const auto value = std::bit_cast<float>(bits);
    ASSERT_EQ(Float::IsNan(bits), std::isnan(value)) << std::hex << bits;
    ASSERT_EQ(Float::IsNonFinite(bits), !std::isfinite(value)) << std::hex << bits;
    if (std::isfinite(value)) {
      ASSERT_EQ(Float::ToDouble(bits), double{value}) << std::hex << bits;
    }
    const uint64_t wide = word << 32 | (word * 2654435761U & 0xffffffff);
    const auto wide_value = std::bit_cast<double>(wide);
    ASSERT_EQ(Double::IsNan(wide), std::isnan(wide_value)) << std::hex << wide;
    ASSERT_EQ(Double::IsNonFinite(wide), !std::isfinite(wide_value)) << std::hex << wide;
    if (std::isfinite(wide_value)) {
      ASSERT_EQ(Double::KeyToDouble(Double::ToKey(wide)), wide_value) << std::hex << wide;
    }
  }
}

TEST(FloatBits, KeysOrderWordsAsTheirValuesAreOrdered) {
  using Half = FormatOf<kFloat16>;
  const double infinity = std::numeric_limits<double>::infinity();
  double before = -infinity;
  for (int key = -0x7bff; key <= 0x7bff; ++key) {
    ASSERT_GT(Half::KeyToDouble(key), before) << key;
    before = Half::KeyToDouble(key);
  }
}

// What the documentation of the formats gives as their largest and smallest magnitudes.
static_assert(FormatOf<kFloat8E4M3Fn>::ToDouble(0x7e) == 448);
static_assert(FormatOf<kFloat8E5M2>::ToDouble(0x7b) == 57344);
static_assert(FormatOf<kFloat8E4M3Fnuz>::ToDouble(0x7f) == 240);
static_assert(FormatOf<kFloat8E5M2Fnuz>::ToDouble(0x7f) == 57344);
static_assert(FormatOf<kFloat8E8M0Fnu>::ToDouble(0) == 0x1p-127);
static_assert(FormatOf<kFloat16>::ToDouble(1) == 0x1p-24);
static_assert(FormatOf<kBFloat16>::ToDouble(0x8001) == -0x1p-133);

}  // namespace
}  // namespace nanwatch
