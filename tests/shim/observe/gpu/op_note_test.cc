// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/op_note.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

using State = KnownNotes::State;

class KnownNotesTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(notes_.Prepare()); }

  static OpNote NoteOf(uint64_t number) {
    OpNote note;
    note.number = number;
    note.producers[0] = number + 100;
    note.producer_count = 1;
    return note;
  }

  KnownNotes notes_;
};

TEST_F(KnownNotesTest, KnowNothingOfAnOpThatWasNotRecorded) {
  EXPECT_EQ(notes_.Find(1), nullptr);
  EXPECT_EQ(notes_.Find(0), nullptr);
}

TEST_F(KnownNotesTest, KeepTheStateAndTheProducers) {
  notes_.Record(NoteOf(7), State::kClean);
  const KnownNotes::Known* known = notes_.Find(7);
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->state, State::kClean);
  ASSERT_EQ(known->producer_count, 1);
  EXPECT_EQ(known->producers[0], 107u);
}

TEST_F(KnownNotesTest, OfABadResultKeepItsValueAndKinds) {
  BadEntry entry{};
  entry.site = 5;
  entry.value = {11, 12};
  notes_.RecordBad(NoteOf(3), entry, wire::kHasPosInf);
  const KnownNotes::Known* known = notes_.Find(3);
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->state, State::kBad);
  EXPECT_EQ(known->site, 5u);
  EXPECT_EQ(known->value.ticket, 11u);
  EXPECT_EQ(known->kinds, wire::kHasPosInf);
}

TEST_F(KnownNotesTest, AnOtherStateTakesThePlaceOfTheFirst) {
  notes_.RecordBad(NoteOf(3), BadEntry{}, wire::kHasNan);
  notes_.Record(NoteOf(3), State::kUnread);
  EXPECT_EQ(notes_.Find(3)->state, State::kUnread);
  EXPECT_EQ(notes_.Find(3)->kinds, 0);
}

TEST_F(KnownNotesTest, ForgetAnOpWhosePlaceAnotherTookSince) {
  constexpr uint64_t kPlaces = 1u << 15;
  notes_.Record(NoteOf(9), State::kClean);
  notes_.Record(NoteOf(9 + kPlaces), State::kUnread);
  EXPECT_EQ(notes_.Find(9), nullptr);
  EXPECT_NE(notes_.Find(9 + kPlaces), nullptr);
}

}  // namespace
}  // namespace nanwatch
