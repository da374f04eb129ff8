// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/row_queue.h"

#include <gtest/gtest.h>

#include <future>

#include "tests/daemon/fleet/rows.h"
#include "tests/daemon/gather/scripted_writer.h"

namespace nanwatch {
namespace {

std::future<Status> SubmitLater(RowQueue& queue, std::vector<FleetRow> rows) {
  return std::async(std::launch::async,
                    [&queue, rows = std::move(rows)] { return queue.Submit(rows); });
}

void AwaitWaiting(const RowQueue& queue, uint64_t rows) {
  while (queue.counts().waiting != rows) std::this_thread::yield();
}

TEST(RowQueue, TakesRowsWhenTheyAreCommitted) {
  ScriptedDatabase database;
  RowQueue queue(2, WritersOf(database), {});
  EXPECT_TRUE(queue.Submit({StepRow(1), StepRow(2)}).ok());
  EXPECT_TRUE(queue.Submit({StepRow(2), StepRow(3)}).ok());
  EXPECT_EQ(database.sequences, (std::set<uint64_t>{1, 2, 3}));
  EXPECT_EQ(queue.counts().written, 3u);
  EXPECT_EQ(queue.counts().duplicates, 1u);
}

TEST(RowQueue, WritesWhatWaitsInOneTransaction) {
  ScriptedDatabase database;
  database.is_open = false;
  RowQueue queue(1, WritersOf(database), {});
  std::vector<std::future<Status>> senders;
  senders.push_back(SubmitLater(queue, {StepRow(1)}));
  database.AwaitWriter();
  for (uint64_t i = 2; i < 7; ++i) senders.push_back(SubmitLater(queue, {StepRow(i)}));
  AwaitWaiting(queue, 5);
  database.Open();
  for (std::future<Status>& sender : senders) EXPECT_TRUE(sender.get().ok());
  EXPECT_EQ(database.transactions, (std::vector<size_t>{1, 5}));
}

TEST(RowQueue, RefusesWhatItHasNoRoomFor) {
  ScriptedDatabase database;
  database.is_open = false;
  RowQueue queue(1, WritersOf(database), {.rows_max = 3});
  std::future<Status> first = SubmitLater(queue, {StepRow(1)});
  database.AwaitWriter();
  // Larger than the queue, but alone in it.
  std::future<Status> second = SubmitLater(queue, {StepRow(2), StepRow(3), StepRow(4), StepRow(5)});
  AwaitWaiting(queue, 4);
  EXPECT_EQ(queue.Submit({StepRow(6)}).kind(), ErrorKind::kBusy);
  EXPECT_EQ(queue.counts().refused, 1u);
  database.Open();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
  EXPECT_TRUE(queue.Submit({StepRow(6)}).ok());
}

TEST(RowQueue, OneThatTheDatabaseRefusesTakesNoOthersWithIt) {
  ScriptedDatabase database;
  database.is_open = false;
  database.refused_sequence = 3;
  RowQueue queue(1, WritersOf(database), {});
  std::future<Status> first = SubmitLater(queue, {StepRow(1)});
  database.AwaitWriter();
  std::future<Status> good = SubmitLater(queue, {StepRow(2)});
  std::future<Status> bad = SubmitLater(queue, {StepRow(3), StepRow(4)});
  AwaitWaiting(queue, 3);
  database.Open();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(good.get().ok());
  EXPECT_EQ(bad.get().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(database.sequences, (std::set<uint64_t>{1, 2}));
}

TEST(RowQueue, SaysThatTheDatabaseIsAwayAndComesBackByItself) {
  ScriptedDatabase database;
  database.answer = Status(ErrorKind::kIo, "away");
  RowQueue queue(1, WritersOf(database), {});
  EXPECT_EQ(queue.Submit({StepRow(1)}).kind(), ErrorKind::kIo);
  EXPECT_FALSE(queue.newest().ok());
  {
    const std::lock_guard<std::mutex> lock(database.mutex);
    database.answer = Status();
  }
  EXPECT_TRUE(queue.Submit({StepRow(1)}).ok());
  EXPECT_TRUE(queue.newest().ok());
}

TEST(RowQueue, SubmitDoesNotWaitForEver) {
  ScriptedDatabase database;
  database.is_open = false;
  RowQueue queue(1, WritersOf(database), {.patience = std::chrono::milliseconds(1)});
  EXPECT_EQ(queue.Submit({StepRow(1)}).kind(), ErrorKind::kIo);
  database.Open();
}

}  // namespace
}  // namespace nanwatch
