// SPDX-License-Identifier: Apache-2.0
#include "proto/wire/hash.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace nanwatch::wire {
namespace {

// Values that others publish: draft-eastlake-fnv, and splitmix64 from seed 0.
TEST(Hash, IsTheOneThatItsNameSays) {
  EXPECT_EQ(Fnv1a(""), 0xcbf29ce484222325u);
  EXPECT_EQ(Fnv1a("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(Fnv1a("foobar"), 0x85944171f73967e8u);
  EXPECT_EQ(Mixed(kGoldenRatio), 0xe220a8397b1dcdafu);
}

TEST(Hash, OfWordsIsThatOfTheirBytesTheLowestFirst) {
  constexpr std::array<uint64_t, 2> kWords = {0x0807060504030201u, 0x61};
  const std::string bytes(
      "\x01\x02\x03\x04\x05\x06\x07\x08"
      "a\0\0\0\0\0\0\0",
      16);
  EXPECT_EQ(Fnv1a(kWords), Fnv1a(bytes));
}

TEST(Hash, OfPartsIsThatOfTheWhole) { EXPECT_EQ(Fnv1a("bar", Fnv1a("foo")), Fnv1a("foobar")); }

// Beyond 0x7f a char may be negative.
TEST(Hash, TakesBytesAsUnsigned) { EXPECT_EQ(Fnv1a("\xff"), (kFnvBegin ^ 0xff) * 0x100000001b3u); }

}  // namespace
}  // namespace nanwatch::wire
