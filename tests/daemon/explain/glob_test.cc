// SPDX-License-Identifier: Apache-2.0
#include "daemon/explain/glob.h"

#include <gtest/gtest.h>

#include <string>

namespace nanwatch {
namespace {

TEST(Glob, WithoutStarsIsTheTextItself) {
  EXPECT_TRUE(MatchesGlob("aten::log", "aten::log"));
  EXPECT_FALSE(MatchesGlob("aten::log", "aten::log_"));
  EXPECT_FALSE(MatchesGlob("aten::log", "aten::lo"));
  EXPECT_TRUE(MatchesGlob("", ""));
  EXPECT_FALSE(MatchesGlob("", "a"));
}

TEST(Glob, StarIsAnyTextAndNone) {
  EXPECT_TRUE(MatchesGlob("*", ""));
  EXPECT_TRUE(MatchesGlob("encoder.*.attn", "encoder.0.self.attn"));
  EXPECT_FALSE(MatchesGlob("encoder.*.attn", "encoder.attn"));
  EXPECT_TRUE(MatchesGlob("a*b*c", "a_b_b_c"));
  EXPECT_TRUE(MatchesGlob("a**", "a"));
  EXPECT_FALSE(MatchesGlob("a*b*c", "a_c_b"));
  EXPECT_TRUE(MatchesGlob("*ab", "aab")) << "the star gives back what it took too little of";
}

TEST(Glob, WithManyStarsEnds) {
  std::string glob;
  for (int i = 0; i < 200; ++i) glob += "*a";
  EXPECT_FALSE(MatchesGlob(glob + "b", std::string(5000, 'a')));
}

}  // namespace
}  // namespace nanwatch
