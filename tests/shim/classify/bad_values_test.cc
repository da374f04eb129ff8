// SPDX-License-Identifier: Apache-2.0
#include "shim/classify/bad_values.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "tests/shim/classify/fake_storage.h"

namespace nanwatch {
namespace {

class BadValuesTest : public testing::Test {
 protected:
  // Ticket of the entry that is found, 0 for none.
  uint64_t Found(const FakeStorage& storage, uint64_t begin, uint64_t end) {
    BadEntry entry;
    return table_.Find(&storage, begin, end, &entry) ? entry.value.ticket : 0;
  }
  std::vector<uint64_t> Living() {
    std::vector<uint64_t> tickets;
    table_.ForEach(
        [](void* context, const BadEntry& entry) {
          static_cast<std::vector<uint64_t>*>(context)->push_back(entry.value.ticket);
        },
        &tickets);
    return tickets;
  }

  FakeStorage a_;
  FakeStorage b_;
  BadValues table_{FakeStorageOps()};
};

TEST_F(BadValuesTest, KnowsNothingAtFirst) {
  EXPECT_EQ(Found(a_, 0, 100), 0u);
  table_.Clear(&a_, 0, 100, true);
  table_.Sweep(0);
  table_.Settle(10, 1);
  table_.Reset();
  EXPECT_TRUE(Living().empty());
  EXPECT_EQ(table_.size(), 0u);
  EXPECT_EQ(table_.transient(), 0u);
}

TEST_F(BadValuesTest, FindsWhatWasAddedWithEverythingThatWasSaidOfIt) {
  BadEntry added = a_.Entry(16, 32, 5);
  added.site = 3;
  added.name = 4;
  added.target = wire::Target::kBuffer;
  added.born_step = 6;
  added.elements = 2;
  added.kinds = wire::kHasNan;
  EXPECT_TRUE(table_.Add(added));
  BadEntry found;
  ASSERT_TRUE(table_.Find(&a_, 16, 32, &found));
  EXPECT_EQ(found.value.ticket, 5u);
  EXPECT_EQ(found.site, 3u);
  EXPECT_EQ(found.name, 4u);
  EXPECT_EQ(found.target, wire::Target::kBuffer);
  EXPECT_EQ(found.born_step, 6u);
  EXPECT_EQ(found.elements, 2u);
  EXPECT_EQ(found.kinds, wire::kHasNan);
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_EQ(table_.transient(), 1u);
  EXPECT_EQ(a_.open(), 1) << "the table holds the handle and nobody has dropped it";
}

TEST_F(BadValuesTest, TellsStoragesApart) {
  table_.Add(a_.Entry(0, 8, 1));
  EXPECT_EQ(Found(b_, 0, 8), 0u);
  table_.Add(b_.Entry(0, 8, 2));
  EXPECT_EQ(Found(a_, 0, 8), 1u);
  EXPECT_EQ(Found(b_, 0, 8), 2u);
}

TEST_F(BadValuesTest, FindsByOverlapAndNotByTouching) {
  table_.Add(a_.Entry(16, 32));
  EXPECT_EQ(Found(a_, 0, 16), 0u);
  EXPECT_EQ(Found(a_, 32, 48), 0u);
  EXPECT_EQ(Found(a_, 0, 17), 1u);
  EXPECT_EQ(Found(a_, 31, 48), 1u);
  EXPECT_EQ(Found(a_, 20, 21), 1u);
  EXPECT_EQ(Found(a_, 0, 100), 1u);
}

TEST_F(BadValuesTest, AnswersWithTheNewestOfSeveralThatOverlap) {
  table_.Add(a_.Entry(0, 20, 1));
  table_.Add(a_.Entry(10, 30, 2));
  EXPECT_EQ(Found(a_, 12, 14), 2u);
  EXPECT_EQ(Found(a_, 0, 30), 2u);
  EXPECT_EQ(Found(a_, 0, 10), 1u)
      << "the older one still stands where the newer one does not reach";
}

TEST_F(BadValuesTest, ReplacesAnEntryThatTheNewOneCovers) {
  table_.Add(a_.Entry(8, 16, 1));
  table_.Add(a_.Entry(8, 16, 2));
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_EQ(a_.open(), 1);
  table_.Add(a_.Entry(0, 64, 3));
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_EQ(table_.transient(), 1u);
  EXPECT_EQ(a_.open(), 1);
  EXPECT_EQ(Living(), std::vector<uint64_t>{3});
}

TEST_F(BadValuesTest, KeepsAnEntryThatTheNewOneCoversInPart) {
  table_.Add(a_.Entry(0, 16, 1));
  table_.Add(a_.Entry(8, 24, 2));
  table_.Add(a_.Entry(10, 12, 3));
  EXPECT_EQ(table_.size(), 3u);
  EXPECT_EQ(a_.open(), 3);
}

TEST_F(BadValuesTest, ReplacesNothingOfAnotherStorage) {
  table_.Add(a_.Entry(8, 16, 1));
  table_.Add(b_.Entry(0, 64, 2));
  EXPECT_EQ(table_.size(), 2u);
  EXPECT_EQ(a_.dropped, 0);
}

TEST_F(BadValuesTest, ACleanWriteTakesAwayWhatLiesInside) {
  table_.Add(a_.Entry(0, 8, 1));
  table_.Add(a_.Entry(8, 16, 2));
  table_.Add(b_.Entry(0, 8, 3));
  table_.Clear(&a_, 0, 8, true);
  EXPECT_EQ(Found(a_, 0, 8), 0u);
  EXPECT_EQ(Found(a_, 8, 16), 2u);
  EXPECT_EQ(Found(b_, 0, 8), 3u);
  EXPECT_EQ(a_.open(), 1);
  EXPECT_EQ(table_.transient(), 2u);
}

// The gates of a recurrent cell are columns of one matrix: (4, 6) floats, two columns each.
TEST_F(BadValuesTest, AWriteWithGapsLeavesWhatLiesInThem) {
  const auto columns = [this](uint64_t begin, uint64_t value) {
    BadEntry entry = a_.Entry(begin, begin + 80, value);
    entry.dense = false;
    return entry;
  };
  table_.Add(columns(0, 1));
  table_.Add(columns(8, 2));
  table_.Add(a_.Entry(16, 24, 3));
  table_.Clear(&a_, 8, 88, false);
  EXPECT_EQ(Found(a_, 16, 24), 3u);
  table_.Add(columns(16, 4));
  EXPECT_EQ(Found(a_, 0, 80), 1u);
  EXPECT_EQ(Found(a_, 16, 96), 4u);
  EXPECT_EQ(table_.size(), 3u);
}

TEST_F(BadValuesTest, AWriteToADiagonalLeavesItsMatrix) {
  table_.Add(a_.Entry(0, 36, 1));
  table_.Clear(&a_, 0, 36, false);
  EXPECT_EQ(Found(a_, 4, 8), 1u);
  BadEntry diagonal = a_.Entry(0, 36, 2);
  diagonal.dense = false;
  table_.Add(diagonal);
  EXPECT_EQ(table_.size(), 2u);
  table_.Clear(&a_, 0, 36, false);
  EXPECT_EQ(Found(a_, 0, 36), 1u);
}

// Columns of -Inf that are written into a matrix in which NaN lies.
TEST_F(BadValuesTest, FindsTheNewestThatHoldsAKind) {
  BadEntry matrix = a_.Entry(0, 36, 1);
  matrix.kinds = wire::kHasNan;
  table_.Add(matrix);
  BadEntry columns = a_.Entry(0, 36, 2);
  columns.dense = false;
  columns.kinds = wire::kHasNegInf;
  table_.Add(columns);
  EXPECT_EQ(Found(a_, 0, 36), 2u);
  BadEntry found;
  ASSERT_TRUE(table_.FindKind(&a_, 0, 36, wire::kHasNan, &found));
  EXPECT_EQ(found.value.ticket, 1u);
  EXPECT_FALSE(table_.FindKind(&a_, 0, 36, wire::kHasPosInf, &found));
  EXPECT_FALSE(table_.FindKind(&a_, 36, 40, wire::kHasNan, &found));
  EXPECT_FALSE(table_.FindKind(&b_, 0, 36, wire::kHasNan, &found));
}

TEST_F(BadValuesTest, CountsWhatIsBadWithinARange) {
  uint8_t kinds = 0;
  EXPECT_EQ(table_.CountWithin(&a_, 0, 64, &kinds), 0u);
  for (const uint64_t at : {4, 32}) {
    BadEntry entry = a_.Entry(at, at + 4, at);
    entry.elements = 1;
    entry.kinds = at == 4 ? wire::kHasNegInf : wire::kHasPosInf;
    table_.Add(entry);
  }
  EXPECT_EQ(table_.CountWithin(&a_, 0, 64, &kinds), 2u);
  EXPECT_EQ(kinds, wire::kHasNegInf | wire::kHasPosInf);
  EXPECT_EQ(table_.CountWithin(&a_, 0, 16, &kinds), 1u);
  EXPECT_EQ(table_.CountWithin(&a_, 0, 34, &kinds), 0u) << "one reaches beyond it";
  BadEntry within = a_.Entry(4, 8, 8);
  within.elements = 1;
  within.dense = false;
  table_.Add(within);
  EXPECT_EQ(table_.CountWithin(&a_, 0, 16, &kinds), 0u) << "two overlap";
  table_.Add(a_.Entry(40, 48, 9));
  EXPECT_EQ(table_.CountWithin(&a_, 0, 64, &kinds), 0u) << "one was not counted";
}

TEST_F(BadValuesTest, ACleanWriteToAPartTakesNothingAway) {
  table_.Add(a_.Entry(0, 16, 1));
  table_.Clear(&a_, 0, 15, true);
  table_.Clear(&a_, 1, 16, true);
  table_.Clear(&a_, 4, 8, true);
  EXPECT_EQ(Found(a_, 0, 16), 1u);
  EXPECT_EQ(a_.dropped, 0);
}

TEST_F(BadValuesTest, ForgetsADeadStorageWhereItMeetsOne) {
  table_.Add(a_.Entry(0, 8, 1));
  a_.dead = true;
  EXPECT_TRUE(Living().empty()) << "even before it is dropped";
  EXPECT_EQ(Found(a_, 0, 8), 0u);
  EXPECT_EQ(a_.dropped, 1);
  EXPECT_EQ(table_.size(), 0u);
  EXPECT_EQ(table_.transient(), 0u);
}

TEST_F(BadValuesTest, AddingToABucketForgetsItsDead) {
  table_.Add(a_.Entry(0, 8, 1));
  table_.Add(a_.Entry(8, 16, 2));
  a_.dead = true;
  table_.Add(a_.Entry(32, 40, 3));
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_EQ(a_.open(), 1);
}

TEST_F(BadValuesTest, ASweepDropsTheDeadAndOnlyThem) {
  table_.Add(a_.Entry(0, 8, 1));
  table_.Add(b_.Entry(0, 8, 2));
  a_.dead = true;
  table_.Sweep(0);
  EXPECT_EQ(a_.open(), 0);
  EXPECT_EQ(b_.open(), 1);
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_EQ(Found(b_, 0, 8), 2u);
}

TEST_F(BadValuesTest, SweepsOfAFewComeRoundToAll) {
  std::deque<FakeStorage> storages(100);
  for (FakeStorage& storage : storages) table_.Add(storage.Entry(0, 8));
  for (size_t i = 0; i < storages.size(); i += 3) storages[i].dead = true;
  table_.Sweep(10);
  EXPECT_GE(table_.size(), 90u) << "one sweep looks at no more than its budget";
  for (int i = 0; i < 10; ++i) table_.Sweep(10);
  for (const FakeStorage& storage : storages) EXPECT_EQ(storage.open(), storage.dead ? 0 : 1);
  EXPECT_EQ(table_.size(), 66u);
}

TEST_F(BadValuesTest, AnEntryGrowsResidentAfterItsSteps) {
  BadEntry entry = a_.Entry(0, 8, 1);
  entry.born_step = 5;
  table_.Add(entry);
  table_.Settle(7, 3);
  EXPECT_EQ(table_.transient(), 1u);
  table_.Settle(8, 3);
  EXPECT_EQ(table_.transient(), 0u);
  EXPECT_EQ(table_.size(), 1u) << "a resident is still known to be bad";
  EXPECT_EQ(Found(a_, 0, 8), 1u);
  table_.Settle(20, 3);
  EXPECT_EQ(table_.transient(), 0u) << "it settles once";
}

TEST_F(BadValuesTest, AResidentThatGoesLeavesTheTransientCountAlone) {
  BadEntry resident = a_.Entry(0, 8, 1);
  resident.resident = true;
  table_.Add(resident);
  table_.Add(b_.Entry(0, 8, 2));
  EXPECT_EQ(table_.transient(), 1u);
  table_.Clear(&a_, 0, 8, true);
  EXPECT_EQ(table_.transient(), 1u);
  EXPECT_EQ(table_.size(), 1u);
}

TEST_F(BadValuesTest, AResidentWrittenAgainIsTransientAgain) {
  table_.Add(a_.Entry(0, 8, 1));
  table_.Settle(100, 3);
  ASSERT_EQ(table_.transient(), 0u);
  BadEntry again = a_.Entry(0, 8, 2);
  again.born_step = 100;
  table_.Add(again);
  EXPECT_EQ(table_.transient(), 1u);
}

class FullBadValuesTest : public BadValuesTest {
 protected:
  void SetUp() override {
    for (FakeStorage& storage : storages_) ASSERT_TRUE(table_.Add(storage.Entry(0, 8)));
  }
  std::deque<FakeStorage> storages_{BadValues::kEntriesMax};
};

TEST_F(FullBadValuesTest, RefusesOneMoreAndDropsItsHandleExactlyOnce) {
  EXPECT_FALSE(table_.Add(a_.Entry(0, 8)));
  EXPECT_EQ(a_.held, 1);
  EXPECT_EQ(a_.dropped, 1);
  EXPECT_EQ(table_.size(), BadValues::kEntriesMax);
  EXPECT_EQ(Found(a_, 0, 8), 0u);
}

TEST_F(FullBadValuesTest, StillReplacesWhatANewEntryCovers) {
  EXPECT_TRUE(table_.Add(storages_[77].Entry(0, 8, 2)));
  EXPECT_EQ(Found(storages_[77], 0, 8), 2u);
  EXPECT_EQ(storages_[77].open(), 1);
  EXPECT_EQ(table_.size(), BadValues::kEntriesMax);
}

TEST_F(FullBadValuesTest, HasRoomAgainAfterASweep) {
  storages_[4000].dead = true;
  EXPECT_FALSE(table_.Add(a_.Entry(0, 8)) && table_.Add(b_.Entry(0, 8)));
  table_.Sweep(0);
  table_.Clear(&storages_[1], 0, 8, true);
  EXPECT_TRUE(table_.Add(b_.Entry(0, 8)));
  EXPECT_EQ(storages_[4000].open(), 0);
}

TEST_F(FullBadValuesTest, AResetDropsEveryHandleExactlyOnceAndStartsAnew) {
  table_.Reset();
  for (const FakeStorage& storage : storages_) EXPECT_EQ(storage.dropped, 1);
  EXPECT_EQ(table_.size(), 0u);
  EXPECT_EQ(table_.transient(), 0u);
  for (FakeStorage& storage : storages_) {
    ASSERT_TRUE(table_.Add(storage.Entry(0, 8, 2))) << "all places are free again";
  }
  EXPECT_EQ(Found(storages_[5], 0, 8), 2u);
}

// Many entries of few storages, added, cleared and killed by a fixed rule: afterwards each handle
// that was taken has been dropped once or stands for one entry, and the counts agree with what can
// be found.
TEST_F(BadValuesTest, HandlesAndCountsAgreeAfterManyChanges) {
  std::deque<FakeStorage> storages(32);
  uint32_t random = 1;
  const auto next = [&random](uint32_t bound) {
    random = random * 1664525u + 1013904223u;
    return (random >> 8) % bound;
  };
  for (uint32_t i = 0; i < 20'000; ++i) {
    FakeStorage& storage = storages[next(32)];
    const uint64_t begin = next(64);
    const uint64_t end = begin + 1 + next(16);
    switch (next(8)) {
      case 0:
        table_.Clear(&storage, begin, end + 32, true);
        break;
      case 1:
        table_.Sweep(next(4) + 1);
        break;
      case 2:
        table_.Settle(i, 100);
        break;
      default: {
        BadEntry entry = storage.Entry(begin, end, i + 1);
        entry.born_step = i;
        table_.Add(entry);
      }
    }
  }
  uint32_t open = 0;
  for (const FakeStorage& storage : storages) open += static_cast<uint32_t>(storage.open());
  EXPECT_EQ(table_.size(), open);
  EXPECT_EQ(Living().size(), open);
  EXPECT_LE(table_.transient(), open);
  for (FakeStorage& storage : storages) storage.dead = true;
  table_.Sweep(0);
  for (const FakeStorage& storage : storages) EXPECT_EQ(storage.open(), 0);
  EXPECT_EQ(table_.size(), 0u);
  EXPECT_EQ(table_.transient(), 0u);
}

}  // namespace
}  // namespace nanwatch
