// SPDX-License-Identifier: Apache-2.0
// The level in force, and what is forgotten where ops go unwatched. Over storages that are no torch's.
#include "shim/observe/events/level_state.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

class SetLevel final : public LevelState {
 public:
  using LevelState::LevelState;
  void Hide() { hidden_.store(true); }
  void RaiseIn(uint32_t step) { raised_in_.store(step + 1); }
};

WeakStorageOps NoStorages() {
  return {.expired = [](void*) noexcept { return false; }, .drop = [](void*) noexcept {}};
}

BadEntry BadValue(uint64_t storage, uint64_t ticket) {
  BadEntry entry;
  entry.storage.storage = reinterpret_cast<const void*>(storage << 12);
  entry.storage.handle = reinterpret_cast<void*>(storage << 12);
  entry.byte_begin = 0;
  entry.byte_end = 64;
  entry.dense = true;
  entry.kinds = wire::kHasNan;
  entry.value.ticket = ticket;
  return entry;
}

TEST(LevelState, IsLowerFromTheStartWhereNotEverythingIsChecked) {
  EXPECT_FALSE(SetLevel(wire::Level::kFull, wire::Level::kFull).was_lower());
  EXPECT_TRUE(SetLevel(wire::Level::kCanary, wire::Level::kCanary).was_lower());
  EXPECT_FALSE(SetLevel(wire::Level::kAuto, wire::Level::kFull).was_lower());
  EXPECT_FALSE(SetLevel(wire::Level::kSampled, wire::Level::kSampled).was_lower());
}

TEST(LevelState, WatchesEveryOpAtFullAndAtLayerAlone) {
  EXPECT_TRUE(WatchesEveryOp(wire::Level::kFull));
  EXPECT_TRUE(WatchesEveryOp(wire::Level::kSampled));
  EXPECT_FALSE(WatchesEveryOp(wire::Level::kCanary));
  EXPECT_FALSE(WatchesEveryOp(wire::Level::kIdle));
}

TEST(LevelState, HasNeverSwitchedAtTheStart) {
  const SetLevel level(wire::Level::kFull, wire::Level::kFull);
  EXPECT_EQ(level.switched_in_step(), UINT32_MAX);
  EXPECT_FALSE(level.off_to_measure());
  EXPECT_FALSE(level.was_off_to_measure());
}

TEST(LevelState, SaysOnceThatOpsWereHidden) {
  SetLevel level(wire::Level::kFull, wire::Level::kFull);
  EXPECT_FALSE(level.TakeHidden());
  level.Hide();
  EXPECT_TRUE(level.TakeHidden());
  EXPECT_FALSE(level.TakeHidden());
}

TEST(LevelState, IsRaisedInTheStepOfTheFindingAlone) {
  SetLevel level(wire::Level::kSampled, wire::Level::kFull);
  EXPECT_FALSE(level.raised_in_step(0));
  level.RaiseIn(7);
  EXPECT_TRUE(level.raised_in_step(7));
  EXPECT_FALSE(level.raised_in_step(8));
}

TEST(LevelState, KnowsTheNewestOfTheValuesThatItHasForgotten) {
  SetLevel level(wire::Level::kFull, wire::Level::kFull);
  BadValues bad_values(NoStorages());
  ASSERT_TRUE(bad_values.Add(BadValue(1, 5)));
  ASSERT_TRUE(bad_values.Add(BadValue(2, 9)));
  ASSERT_TRUE(bad_values.Add(BadValue(3, 7)));
  level.ForgetBadValues(bad_values);
  EXPECT_EQ(bad_values.size(), 0u);
  EXPECT_TRUE(level.forgot_bad_values());
  EXPECT_EQ(level.forgotten_value().ticket, 9u);
}

TEST(LevelState, HasForgottenNothingWhereNothingWasBad) {
  SetLevel level(wire::Level::kFull, wire::Level::kFull);
  BadValues bad_values(NoStorages());
  level.ForgetBadValues(bad_values);
  EXPECT_FALSE(level.forgot_bad_values());
  EXPECT_EQ(level.forgotten_value().ticket, 0u);
}

}  // namespace
}  // namespace nanwatch
