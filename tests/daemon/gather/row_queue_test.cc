// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/row_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "tests/daemon/fleet/rows.h"
#include "tests/daemon/gather/scripted_writer.h"

namespace nanwatch {
namespace {

std::future<Submitted> SubmitLater(RowQueue& queue, std::vector<FleetRow> rows) {
  return std::async(std::launch::async,
                    [&queue, rows = std::move(rows)] { return queue.Submit(rows, std::nullopt); });
}

void AwaitWaiting(const RowQueue& queue, uint64_t rows) {
  while (queue.counts().waiting != rows) std::this_thread::yield();
}

TEST(RowQueue, TakesRowsWhenTheyAreCommitted) {
  ScriptedDatabase database;
  RowQueue queue(2, WritersOf(database), {});
  EXPECT_TRUE(queue.Submit({StepRow(1), StepRow(2)}, std::nullopt).status.ok());
  EXPECT_TRUE(queue.Submit({StepRow(2), StepRow(3)}, std::nullopt).status.ok());
  EXPECT_EQ(database.sequences, (std::set<uint64_t>{1, 2, 3}));
  EXPECT_EQ(queue.counts().written, 3u);
  EXPECT_EQ(queue.counts().duplicates, 1u);
}

TEST(RowQueue, WritesWhatWaitsInOneTransaction) {
  ScriptedDatabase database;
  database.is_open = false;
  RowQueue queue(1, WritersOf(database), {});
  std::vector<std::future<Submitted>> senders;
  senders.push_back(SubmitLater(queue, {StepRow(1)}));
  database.AwaitWriter();
  for (uint64_t i = 2; i < 7; ++i) senders.push_back(SubmitLater(queue, {StepRow(i)}));
  AwaitWaiting(queue, 5);
  database.Open();
  for (std::future<Submitted>& sender : senders) EXPECT_TRUE(sender.get().status.ok());
  EXPECT_EQ(database.transactions, (std::vector<size_t>{1, 5}));
}

TEST(RowQueue, SaysWhoseRowIsMissingAlsoWhereItBringsThatRow) {
  ScriptedDatabase database;
  RowQueue queue(1, WritersOf(database), {});
  const HeldRow first = NameOf(StepRow(1)), second = NameOf(StepRow(2));
  EXPECT_TRUE(queue.Submit({}, first).is_held_missing);
  EXPECT_TRUE(queue.Submit({StepRow(1)}, first).is_held_missing);
  EXPECT_FALSE(queue.Submit({StepRow(3)}, first).is_held_missing);
  EXPECT_FALSE(queue.Submit({}, first).is_held_missing);
  // Among rows that are refused it is the same.
  database.refused_sequence = 4;
  const Submitted halves = queue.Submit({StepRow(2), StepRow(4), StepRow(5)}, second);
  EXPECT_EQ(halves.refused, 1u);
  EXPECT_TRUE(halves.is_held_missing);
}

TEST(RowQueue, SaysItToTheSenderWhoseRowItIs) {
  ScriptedDatabase database;
  database.is_open = false;
  RowQueue queue(1, WritersOf(database), {});
  std::future<Submitted> blocks = SubmitLater(queue, {StepRow(1)});
  database.AwaitWriter();
  std::vector<std::future<Submitted>> senders;
  for (uint64_t i = 2; i < 4; ++i) {
    senders.push_back(std::async(std::launch::async, [&queue, i] {
      return queue.Submit({StepRow(i)}, NameOf(StepRow(i == 2 ? 1 : 9)));
    }));
  }
  AwaitWaiting(queue, 2);
  database.Open();
  EXPECT_FALSE(senders[0].get().is_held_missing);
  EXPECT_TRUE(senders[1].get().is_held_missing);
  EXPECT_EQ(database.transactions, (std::vector<size_t>{1, 2}));
}

TEST(RowQueue, LetsFewRowsWaitForOthers) {
  ScriptedDatabase database;
  RowQueue queue(1, WritersOf(database), {.rows_few = 3, .few_wait = std::chrono::minutes(1)});
  std::future<Submitted> first = SubmitLater(queue, {StepRow(1)});
  AwaitWaiting(queue, 1);
  std::future<Submitted> second = SubmitLater(queue, {StepRow(2), StepRow(3)});
  EXPECT_TRUE(first.get().status.ok());
  EXPECT_TRUE(second.get().status.ok());
  EXPECT_EQ(database.transactions, (std::vector<size_t>{3}));
}

TEST(RowQueue, WritesFewRowsThoughNoOthersCome) {
  ScriptedDatabase database;
  RowQueue queue(1, WritersOf(database), {.rows_few = 3, .few_wait = std::chrono::milliseconds(1)});
  EXPECT_TRUE(queue.Submit({StepRow(1)}, std::nullopt).status.ok());
  EXPECT_EQ(database.transactions, (std::vector<size_t>{1}));
}

TEST(RowQueue, RefusesWhatItHasNoRoomFor) {
  ScriptedDatabase database;
  database.is_open = false;
  RowQueue queue(1, WritersOf(database), {.rows_max = 3});
  std::future<Submitted> first = SubmitLater(queue, {StepRow(1)});
  database.AwaitWriter();
  // Larger than the queue, but alone in it.
  std::future<Submitted> second =
      SubmitLater(queue, {StepRow(2), StepRow(3), StepRow(4), StepRow(5)});
  AwaitWaiting(queue, 4);
  EXPECT_EQ(queue.Submit({StepRow(6)}, std::nullopt).status.kind(), ErrorKind::kBusy);
  EXPECT_EQ(queue.counts().refused, 1u);
  database.Open();
  EXPECT_TRUE(first.get().status.ok());
  EXPECT_TRUE(second.get().status.ok());
  EXPECT_TRUE(queue.Submit({StepRow(6)}, std::nullopt).status.ok());
}

TEST(RowQueue, OneThatTheDatabaseRefusesTakesNoOthersWithIt) {
  ScriptedDatabase database;
  database.is_open = false;
  database.refused_sequence = 3;
  RowQueue queue(1, WritersOf(database), {});
  std::future<Submitted> first = SubmitLater(queue, {StepRow(1)});
  database.AwaitWriter();
  std::future<Submitted> good = SubmitLater(queue, {StepRow(2)});
  std::future<Submitted> bad = SubmitLater(queue, {StepRow(3), StepRow(4), StepRow(5)});
  AwaitWaiting(queue, 4);
  database.Open();
  EXPECT_TRUE(first.get().status.ok());
  const Submitted all_good = good.get();
  EXPECT_TRUE(all_good.status.ok());
  EXPECT_EQ(all_good.refused, 0u);
  const Submitted some = bad.get();
  EXPECT_TRUE(some.status.ok()) << some.status.message();
  EXPECT_EQ(some.refused, 1u);
  EXPECT_EQ(some.why, "a row is refused");
  EXPECT_EQ(database.sequences, (std::set<uint64_t>{1, 2, 4, 5}));
  EXPECT_TRUE(queue.newest().ok()) << "the row is at fault, not the database";
}

TEST(RowQueue, SearchesRefusedRowsForABoundedTime) {
  ScriptedDatabase database;
  database.refuses_all = true;
  RowQueue queue(1, WritersOf(database), {});
  std::vector<FleetRow> rows;
  for (uint64_t i = 1; i <= 1'000; ++i) rows.push_back(StepRow(i));
  EXPECT_EQ(queue.Submit(rows, std::nullopt).status.kind(), ErrorKind::kIo);
  EXPECT_LE(queue.counts().failures, 128u);
  rows.resize(20);
  const Submitted some = queue.Submit(rows, std::nullopt);
  EXPECT_TRUE(some.status.ok());
  EXPECT_EQ(some.refused, 20u);
}

TEST(RowQueue, StopsWhateverWaitsOrComes) {
  ScriptedDatabase database;
  database.is_open = false;
  RowQueue queue(1, WritersOf(database), {});
  std::future<Submitted> first = SubmitLater(queue, {StepRow(1)});
  database.AwaitWriter();
  std::future<Submitted> second = SubmitLater(queue, {StepRow(2)});
  AwaitWaiting(queue, 1);
  queue.Stop();
  EXPECT_EQ(second.get().status.kind(), ErrorKind::kIo);
  EXPECT_EQ(queue.Submit({StepRow(3)}, std::nullopt).status.kind(), ErrorKind::kIo);
  database.Open();
  EXPECT_TRUE(first.get().status.ok());
}

TEST(RowQueue, SaysThatTheDatabaseIsAwayAndComesBackByItself) {
  ScriptedDatabase database;
  database.answer = Status(ErrorKind::kIo, "away");
  RowQueue queue(1, WritersOf(database), {});
  EXPECT_EQ(queue.Submit({StepRow(1)}, std::nullopt).status.kind(), ErrorKind::kIo);
  EXPECT_FALSE(queue.newest().ok());
  {
    const std::lock_guard<std::mutex> lock(database.mutex);
    database.answer = Status();
  }
  EXPECT_TRUE(queue.Submit({StepRow(1)}, std::nullopt).status.ok());
  EXPECT_TRUE(queue.newest().ok());
}

TEST(RowQueue, SubmitDoesNotWaitForEver) {
  ScriptedDatabase database;
  database.is_open = false;
  RowQueue queue(1, WritersOf(database), {.patience = std::chrono::milliseconds(1)});
  EXPECT_EQ(queue.Submit({StepRow(1)}, std::nullopt).status.kind(), ErrorKind::kIo);
  database.Open();
}

}  // namespace
}  // namespace nanwatch
