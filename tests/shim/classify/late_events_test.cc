// SPDX-License-Identifier: Apache-2.0
// Bad values whose storage has died before everything that read it was told.
#include <gtest/gtest.h>

#include <deque>

#include "shim/classify/bad_values.h"
#include "tests/shim/classify/fake_storage.h"

namespace nanwatch {
namespace {

TEST(EventClock, HasCaughtUpOnceAllIsToldThatWasNotedWhenItWasFirstAsked) {
  EventClock clock;
  clock.noted = 5;
  clock.told = 3;
  uint64_t since = 0;
  EXPECT_FALSE(clock.HasCaughtUp(&since));
  clock.noted = 9;  // later ones do not matter
  clock.told = 4;
  EXPECT_FALSE(clock.HasCaughtUp(&since));
  clock.told = 5;
  EXPECT_TRUE(clock.HasCaughtUp(&since));
}

TEST(EventClock, HasCaughtUpAtOnceWhereNothingIsOpen) {
  EventClock clock;
  uint64_t since = 0;
  EXPECT_TRUE(clock.HasCaughtUp(&since)) << "no event was ever noted";
  clock.noted = clock.told = 7;
  uint64_t other = 0;
  EXPECT_TRUE(clock.HasCaughtUp(&other));
}

class LateEventsTest : public testing::Test {
 protected:
  bool Finds(const FakeStorage& storage) {
    BadEntry entry;
    return table_.Find(&storage, 0, 8, &entry);
  }

  EventClock clock_;
  FakeStorage storage_;
  FakeStorage other_;
  BadValues table_{FakeStorageOps(), &clock_};
};

TEST_F(LateEventsTest, AnEntryOutlivesItsStorageUntilItsReadersAreTold) {
  table_.Add(storage_.Entry(0, 8));
  clock_.noted = 10;
  storage_.dead = true;
  EXPECT_TRUE(Finds(storage_)) << "event 10 may have read it";
  clock_.noted = 20;
  clock_.told = 9;
  EXPECT_TRUE(Finds(storage_));
  EXPECT_EQ(storage_.open(), 1);
  clock_.told = 10;
  EXPECT_FALSE(Finds(storage_));
  EXPECT_EQ(storage_.open(), 0);
}

TEST_F(LateEventsTest, AnEntryWhoseStorageLivesDoesNotGoByTheClock) {
  table_.Add(storage_.Entry(0, 8));
  clock_.noted = clock_.told = 50;
  EXPECT_TRUE(Finds(storage_));
}

TEST_F(LateEventsTest, ASweepLeavesWhatMayStillBeAskedFor) {
  table_.Add(storage_.Entry(0, 8));
  table_.Add(other_.Entry(0, 8));
  clock_.noted = 3;
  storage_.dead = true;
  table_.Sweep(0);
  EXPECT_EQ(table_.size(), 2u);
  clock_.told = 3;
  table_.Sweep(0);
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_EQ(other_.open(), 1);
}

TEST_F(LateEventsTest, AWriteToTheAddressOfADeadStorageTakesItsEntryAway) {
  table_.Add(storage_.Entry(0, 8));
  clock_.noted = 3;
  storage_.dead = true;
  table_.Clear(&storage_, 0, 8, true);
  EXPECT_FALSE(Finds(storage_));
  EXPECT_EQ(storage_.open(), 0);
}

TEST_F(LateEventsTest, WhoeverWasTurnedAwayIsRemembered) {
  std::deque<FakeStorage> storages(BadValues::kEntriesMax);
  for (FakeStorage& storage : storages) table_.Add(storage.Entry(0, 8));
  EXPECT_FALSE(table_.lost());
  EXPECT_FALSE(table_.Add(other_.Entry(0, 8)));
  EXPECT_TRUE(table_.lost());
  table_.Reset();
  EXPECT_TRUE(table_.lost()) << "what comes of it may still be on its way";
}

}  // namespace
}  // namespace nanwatch
