// SPDX-License-Identifier: Apache-2.0
// Keys from the bytes that terminals send. What the screen does to a terminal is tried on a real
// one (tests/e2e/top).
#include "tools/screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nanwatch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr KeyPress kQ{.character = 'q'};
constexpr KeyPress kUp{.key = Key::kUp};
constexpr KeyPress kDown{.key = Key::kDown};

TEST(KeyDecoder, CharactersAreKeys) {
  KeyDecoder decoder;
  EXPECT_THAT(decoder.Feed("jq"), ElementsAre(KeyPress{.character = 'j'}, kQ));
}

TEST(KeyDecoder, ArrowsComeInBothModesOfATerminal) {
  KeyDecoder decoder;
  EXPECT_THAT(decoder.Feed("\x1b[A\x1bOB"), ElementsAre(kUp, kDown));
  EXPECT_THAT(decoder.Feed("\x1b[5~\x1b[6~\x1b[H\x1b[4~"),
              ElementsAre(KeyPress{.key = Key::kPageUp}, KeyPress{.key = Key::kPageDown},
                          KeyPress{.key = Key::kHome}, KeyPress{.key = Key::kEnd}));
}

TEST(KeyDecoder, ASequenceMayComeInPieces) {
  KeyDecoder decoder;
  EXPECT_THAT(decoder.Feed("\x1b"), IsEmpty());
  EXPECT_THAT(decoder.Feed("["), IsEmpty());
  EXPECT_THAT(decoder.Feed("Bq"), ElementsAre(kDown, kQ));
}

TEST(KeyDecoder, SequencesThatMeanNothingHereArePassedOverWhole) {
  KeyDecoder decoder;
  EXPECT_THAT(decoder.Feed("\x1b[1;5C\x1b[200~\x1b[<0;10;20Mq"), ElementsAre(kQ));
}

TEST(KeyDecoder, AKeyAfterALoneEscapeCounts) {
  KeyDecoder decoder;
  EXPECT_THAT(decoder.Feed("\x1bq"), ElementsAre(kQ));
  EXPECT_THAT(decoder.Feed("\x1b\x1b[A"), ElementsAre(kUp));
}

TEST(KeyDecoder, EndlessSequencesEnd) {
  KeyDecoder decoder;
  (void)decoder.Feed("\x1b[" + std::string(1000, '1'));
  EXPECT_THAT(decoder.Feed("q").size() + decoder.Feed("q").size(), ::testing::Ge(1u));
}

}  // namespace
}  // namespace nanwatch
