// SPDX-License-Identifier: Apache-2.0
// Fault 9: calls to the disk fail with EIO, and pages of the database are met that make no sense.
#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <string>

#include "daemon/base/directories.h"
#include "tests/fakes/faulty_disk.h"
#include "tests/faults/scene.h"

namespace nanwatch {
namespace {

namespace fs = std::filesystem;

class DiskErrorsTest : public FaultTest {
 protected:
  // How many databases were.
  [[nodiscard]] int MovedAside() const {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(options_.state_dir)) {
      const std::string name = entry.path().filename();
      if (name.find(".corrupt-") != std::string::npos && name.ends_with("Z")) ++count;
    }
    return count;
  }
  [[nodiscard]] std::string Said() const {
    std::string said;
    for (const std::string& trouble : listener_.troubles) said += trouble + "\n";
    return said;
  }
  // Overwrites all pages of the database in which this stands; how many.
  int SpoilDatabase(const std::string& text) {
    const std::string path = DatabasePath(options_.state_dir);
    sqlite3* other = nullptr;
    EXPECT_EQ(sqlite3_open(path.c_str(), &other), SQLITE_OK);
    (void)sqlite3_exec(other, "PRAGMA wal_checkpoint(TRUNCATE)", nullptr, nullptr, nullptr);
    sqlite3_close(other);
    constexpr size_t kPage = 4'096;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(file)),
                            std::istreambuf_iterator<char>());
    int spoilt = 0;
    for (size_t at = kPage; at + kPage <= whole.size(); at += kPage) {
      if (whole.substr(at, kPage).find(text) == std::string::npos) continue;
      file.clear();
      file.seekp(static_cast<std::streamoff>(at));
      file.write(std::string(kPage, '\x5a').data(), kPage);
      ++spoilt;
    }
    return spoilt;
  }

  FaultyDisk disk_;
};

TEST_F(DiskErrorsTest, OneAnywhereLosesNothingAndDoublesNothing) {
  const int rounds = FaultRounds(60, 600);
  for (int nth = 1; nth <= rounds && !HasFailure(); ++nth) {
    options_.state_dir = directory_ / ("state-" + std::to_string(nth));
    Start();
    const auto nonce = static_cast<uint64_t>(nth);
    SegmentBuilder job(options_.segment_dir, {.nonce = nonce});
    Tick();
    disk_.FailAt(static_cast<uint64_t>(nth), FaultyDisk::Fault::kIo, /*lasting=*/false);
    for (int i = 0; i < 5; ++i) {
      job.WriteValue("aten::log", "a" + std::to_string(i));
      Tick(1'100);
    }
    disk_.Heal();
    Tick(2'100);
    EXPECT_EQ(TicketsOf(nonce), 5u) << "call " << nth;
    EXPECT_EQ(MovedAside(), 0) << "one error is no reason for a new file";
    ExpectSoundStore();
    daemon_.reset();
    fs::remove(job.path());
  }
}

TEST_F(DiskErrorsTest, OfOneFileAreSaidOnceAMinuteAndTheFileIsLeft) {
  Start();
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  Tick();
  disk_.FailOnly("nanwatch.db");
  disk_.FailAt(1, FaultyDisk::Fault::kIo, /*lasting=*/true);
  job.WriteValue("aten::log", "a");
  for (int i = 0; i < 9; ++i) Tick(1'000);
  ASSERT_EQ(listener_.troubles.size(), 1u);
  EXPECT_NE(listener_.troubles[0].find("cannot be written"), std::string::npos);
  EXPECT_EQ(MovedAside(), 0);
  for (int i = 0; i < 30; ++i) Tick(1'000);
  EXPECT_EQ(MovedAside(), 1);
  EXPECT_LE(listener_.troubles.size(), 4u) << "and not every two seconds that no new one can be";
  disk_.Heal();
  for (int i = 0; i < 4; ++i) Tick(1'100);
  EXPECT_EQ(TicketsOf(1), 1u) << "nothing had been released";
  ExpectSoundStore();
}

// The file is sound, and the only one that holds what was found before.
TEST_F(DiskErrorsTest, OfTheWholeDiskAreNoFaultOfTheDatabase) {
  for (const FaultyDisk::Fault fault :
       {FaultyDisk::Fault::kIo, FaultyDisk::Fault::kMemory, FaultyDisk::Fault::kFull}) {
    options_.state_dir = directory_ / ("state-" + std::to_string(static_cast<int>(fault)));
    Start();
    const auto nonce = static_cast<uint64_t>(fault) + 1;
    SegmentBuilder job(options_.segment_dir, {.nonce = nonce});
    job.WriteValue("aten::log", "a");
    Tick();
    disk_.FailAt(1, fault, /*lasting=*/true);
    job.WriteValue("aten::log", "b");
    for (int i = 0; i < 700; ++i) Tick(1'000);
    EXPECT_EQ(MovedAside(), 0) << static_cast<int>(fault);
    if (fault == FaultyDisk::Fault::kIo) {
      EXPECT_NE(Said().find("cannot be written either ("), std::string::npos) << Said();
    }
    disk_.Heal();
    for (int i = 0; i < 4; ++i) Tick(1'100);
    EXPECT_EQ(TicketsOf(nonce), 2u);
    ExpectSoundStore();
    daemon_.reset();
    fs::remove(job.path());
  }
}

// What fails may be a record, or we ourselves: the file is written to all the same.
TEST_F(DiskErrorsTest, FailuresThatAreNoneOfTheDiskLeaveTheDatabaseWhereItIs) {
  Start();
  Tick();
  RefuseRunOne();
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  job.WriteValue("aten::log", "a");
  for (int i = 0; i < 30; ++i) Tick(1'000);
  EXPECT_EQ(MovedAside(), 0) << "a refused row";
  AcceptRunOne();
  daemon_->intake().set_after_commit([](const std::string&) { throw std::bad_alloc(); });
  for (int i = 0; i < 100; ++i) Tick(1'000);
  EXPECT_EQ(MovedAside(), 0) << "no memory";
  daemon_->intake().set_after_commit({});
  for (int i = 0; i < 70; ++i) Tick(1'000);
  EXPECT_EQ(TicketsOf(1), 1u);
  EXPECT_EQ(job.ring().released_slots.load(), job.ring().reserved_slots.load());
}

// A disk that spoils every file: the database of before and one of after are enough to see that.
TEST_F(DiskErrorsTest, DamageThatComesAgainAndAgainMovesOneDatabaseAside) {
  Start();
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  job.WriteValue("aten::log", "a");
  Tick();
  for (int i = 0; i < 100; ++i) {
    SpoilDatabase("aten::log");
    job.WriteValue("aten::log", "b" + std::to_string(i % 100));
    Tick(1'100);
  }
  EXPECT_EQ(MovedAside(), 1);
}

// Pages that nobody but a verdict reads, as most of a large database are.
TEST_F(DiskErrorsTest, DamageThatAVerdictMeetsIsSaidAndANewDatabaseIsBegun) {
  Start();
  {
    SegmentBuilder ended(options_.segment_dir, {.nonce = 1, .job = "j", .dead = true});
    for (int i = 0; i < 100; ++i) ended.WriteValue("aten::log", "layer." + std::to_string(i));
    Tick();
    Tick(1'100);
  }
  ASSERT_GT(SpoilDatabase("layer.7"), 0);
  std::ofstream(options_.segment_dir + "/j.exit") << R"({"job":"j","pid":1,"exit_code":0})";
  Tick(2'100);
  Tick(1'100);
  EXPECT_EQ(MovedAside(), 1);
  ASSERT_EQ(listener_.troubles.size(), 2u) << "by whom it was met, and what became of it";
  EXPECT_NE(listener_.troubles[0].find("verdict of job j cannot be renewed"), std::string::npos);
  EXPECT_NE(listener_.troubles[1].find("is damaged"), std::string::npos);
  SegmentBuilder job(options_.segment_dir, {.nonce = 2});
  job.WriteValue("aten::exp", "b");
  Tick(2'100);
  EXPECT_EQ(TicketsOf(2), 1u);
  ExpectSoundStore();
}

// A job that has ended waits for the disk, too: its reads are counted once they are committed.
TEST_F(DiskErrorsTest, WhatADeadJobLeftIsReadToItsEndOnceTheDiskIsThereAgain) {
  constexpr SegmentLayout kLarge = SmallLayoutWithRing(1 << 16);
  Start();
  Tick();
  disk_.FailAt(1, FaultyDisk::Fault::kFull, /*lasting=*/true);
  SegmentBuilder job(options_.segment_dir, {.layout = kLarge, .nonce = 1, .dead = true});
  const auto written = static_cast<uint64_t>(FillWithLongNames(job, kLarge));
  for (int i = 0; i < 20; ++i) Tick(2'100);
  disk_.Heal();
  for (int i = 0; i < 9; ++i) Tick(2'100);
  EXPECT_EQ(daemon_->intake().open_segments(), 0u);
  EXPECT_EQ(TicketsOf(1) + FactsOf(1).state().records_thinned(), written);
  EXPECT_EQ(FactsOf(1).state().records_dropped(), job.dropped());
  EXPECT_TRUE(listener_.unreadable.empty()) << listener_.unreadable.at(0);
}

// The next one is damaged, too: the disk is at fault, and it has one database to keep.
TEST_F(DiskErrorsTest, ADatabaseThatWasMovedAsideAtTheStartIsTheOnlyOne) {
  ASSERT_TRUE(EnsureStateDirectory(options_.state_dir).ok());
  std::ofstream(DatabasePath(options_.state_dir)) << std::string(100'000, 'x');
  Start();
  ASSERT_EQ(MovedAside(), 1);
  SegmentBuilder job(options_.segment_dir, {.nonce = 1});
  job.WriteValue("aten::log", "a");
  Tick();
  for (int i = 0; i < 30; ++i) {
    SpoilDatabase("aten::log");
    job.WriteValue("aten::log", "b" + std::to_string(i));
    Tick(1'100);
  }
  EXPECT_EQ(MovedAside(), 1);
}

}  // namespace
}  // namespace nanwatch
