// SPDX-License-Identifier: Apache-2.0
#include "shim/device/launch_table.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <set>
#include <thread>
#include <vector>

namespace nanwatch::device {
namespace {

std::vector<uint32_t> Queued(LaunchTable& table, LaunchStream& stream) {
  table.TakeQueued(stream);
  std::vector<uint32_t> slots;
  for (uint32_t slot = stream.oldest; slot != kNilSlot; slot = table.Launch(slot).next_queued) {
    slots.push_back(slot);
  }
  return slots;
}

TEST(LaunchTable, HandsEachSlotOutOnceUntilItIsGivenBack) {
  const auto table = LaunchTable::Create(5);
  std::set<uint32_t> slots;
  for (int i = 0; i < 5; ++i) slots.insert(table->Take());
  EXPECT_EQ(slots, (std::set<uint32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(table->Take(), kNilSlot);
  table->Give(3);
  EXPECT_EQ(table->Take(), 3u);
  EXPECT_EQ(table->Take(), kNilSlot);
}

TEST(LaunchTable, KeepsTheOrderInWhichLaunchesWerePushed) {
  const auto table = LaunchTable::Create(8);
  LaunchStream& stream = table->Stream(0);
  for (const uint32_t slot : {4u, 1u, 6u}) table->Push(stream, slot);
  EXPECT_EQ(Queued(*table, stream), (std::vector<uint32_t>{4, 1, 6}));
  for (const uint32_t slot : {7u, 0u}) table->Push(stream, slot);
  EXPECT_EQ(Queued(*table, stream), (std::vector<uint32_t>{4, 1, 6, 7, 0}));
}

TEST(LaunchTable, KnowsAStreamByItsKeyUntilTheTableIsFull) {
  const auto table = LaunchTable::Create(1);
  std::set<uint32_t> indices;
  for (uint64_t key = 1; key <= kStreamsMax; ++key) indices.insert(table->StreamFor(key * 512));
  EXPECT_EQ(indices.size(), kStreamsMax);
  EXPECT_EQ(table->StreamFor(512), table->StreamFor(512));
  EXPECT_EQ(table->StreamFor(513), kStreamsMax);
}

TEST(LaunchTable, VisitsEachStreamThatWasMadeOnce) {
  const auto table = LaunchTable::Create(1);
  std::set<uint32_t> made;
  std::vector<uint32_t> visited;
  const auto visit = [&visited](uint32_t index) { visited.push_back(index); };
  table->ForEachStream(visit);
  EXPECT_TRUE(visited.empty());
  for (const uint64_t key : std::initializer_list<uint64_t>{0x7f0011223340, 2, 3, 77, 1000, 2}) {
    made.insert(table->StreamFor(key));
  }
  EXPECT_EQ(made.size(), 5U);
  table->ForEachStream(visit);
  EXPECT_EQ(visited.size(), made.size());
  EXPECT_EQ(std::set<uint32_t>(visited.begin(), visited.end()), made);
}

constexpr uint32_t kSlots = 4;
constexpr int kThreads = 4;
constexpr int kRounds = 100000;

TEST(LaunchTable, LosesAndDoublesNothingBetweenThreads) {
  const auto table = LaunchTable::Create(kSlots);
  std::atomic<int> owners[kSlots] = {};
  std::atomic<int> doubled{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        // Two at a time, so that between another thread's look and its swap the first free slot can
        // go and come back with another behind it.
        const uint32_t slots[] = {table->Take(), table->Take()};
        for (const uint32_t slot : slots) {
          if (slot == kNilSlot) continue;
          if (owners[slot].fetch_add(1) != 0) doubled.fetch_add(1);
          table->Launch(slot).ticket = 1;  // a race detector sees whether the slot is ours alone
          owners[slot].fetch_sub(1);
        }
        for (const uint32_t slot : {slots[1], slots[0]}) {
          if (slot != kNilSlot) table->Give(slot);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(doubled.load(), 0);
  std::set<uint32_t> slots;
  for (uint32_t i = 0; i < kSlots; ++i) slots.insert(table->Take());
  EXPECT_EQ(slots, (std::set<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(table->Take(), kNilSlot);
}

}  // namespace
}  // namespace nanwatch::device
