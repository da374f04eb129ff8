// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/database_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "daemon/store/schema.h"
#include "daemon/store/store.h"
#include "tests/daemon/store/batch_builder.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

using testing::HasSubstr;

// As version 1 made it, with one run in it.
constexpr char kVersion1[] = R"sql(
CREATE TABLE run (key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, job TEXT NOT NULL, rank INTEGER NOT NULL,
  attempt INTEGER NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, pid_outer INTEGER NOT NULL,
  program TEXT NOT NULL, started_real_ns INTEGER NOT NULL, updated_real_ns INTEGER NOT NULL,
  ended INTEGER NOT NULL, identity BLOB NOT NULL, state BLOB NOT NULL);
CREATE INDEX run_by_job ON run (job, started_real_ns);
CREATE INDEX run_by_start ON run (started_real_ns);
CREATE TABLE site (run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE, id INTEGER NOT NULL,
  body BLOB NOT NULL, PRIMARY KEY (run, id)) WITHOUT ROWID;
CREATE TABLE record (run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE, ticket INTEGER NOT NULL,
  kind INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (run, ticket)) WITHOUT ROWID;
CREATE TABLE reach (run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE, reach INTEGER NOT NULL,
  body BLOB NOT NULL, PRIMARY KEY (run, reach)) WITHOUT ROWID;
CREATE TABLE step (run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE, number INTEGER NOT NULL,
  body BLOB NOT NULL, PRIMARY KEY (run, number)) WITHOUT ROWID;
CREATE TABLE cursor (run INTEGER PRIMARY KEY REFERENCES run (key) ON DELETE CASCADE, ring INTEGER NOT NULL,
  steps INTEGER NOT NULL);
CREATE TABLE incident (job TEXT NOT NULL, position INTEGER NOT NULL, run TEXT NOT NULL, rank INTEGER NOT NULL,
  severity TEXT NOT NULL, op TEXT NOT NULL, layer TEXT NOT NULL, step INTEGER NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (job, position)) WITHOUT ROWID;
CREATE TABLE job_exit (job TEXT NOT NULL, pid INTEGER NOT NULL, exit_code INTEGER, signal INTEGER,
  ended_real_ns INTEGER NOT NULL, PRIMARY KEY (job, pid)) WITHOUT ROWID;
INSERT INTO run VALUES (1, '00000000000000aa', 'j', 0, 0, 'h', 1, 1, 'p', 1, 1, 0, x'', x'');
INSERT INTO cursor VALUES (1, 17, 3);
PRAGMA user_version = 1;
)sql";

class DatabaseFileTest : public testing::Test {
 protected:
  void Make(const char* sql) {
    Result<Database> database = Database::Open(path_, Database::Access::kWrite);
    ASSERT_TRUE(database.ok());
    const Status made = database->Execute(sql);
    ASSERT_TRUE(made.ok()) << made.message();
  }
  // Tables and their columns, however they came to be.
  std::vector<std::string> Shape() {
    std::vector<std::string> shape;
    const Result<Database> database = Database::Open(path_, Database::Access::kRead);
    Result<Statement> query = database->Prepare(
        "SELECT m.name || '.' || c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE "
        "m.type = 'table'"
        " UNION SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL ORDER BY "
        "1");
    while (query->Next().value()) shape.push_back(query->Text(0));
    return shape;
  }

  TemporaryDirectory directory_;
  std::string path_ = directory_ / "nanwatch.db";
};

TEST_F(DatabaseFileTest, AnOlderDatabaseIsMigratedAndKeepsWhatItHolds) {
  Make(kVersion1);
  const Result<Store> store = Store::OpenForWriting(path_);
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_THAT(store->opening_note(), HasSubstr("from schema 1 to 4"));
  EXPECT_EQ(store->CursorOf("00000000000000aa").value(), (SegmentCursor{.ring = 17, .steps = 3}));
}

// As version 3 made it: what version 1 made, and the migrations of before.
TEST_F(DatabaseFileTest, ADatabaseOfVersion3TakesSnapshots) {
  const std::string version3 = std::string(kVersion1) + kMigrations[0] + kMigrations[1] +
                               "UPDATE cursor SET steps_lost = 5; PRAGMA user_version = 3;";
  Make(version3.c_str());
  Result<Store> store = Store::OpenForWriting(path_);
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_THAT(store->opening_note(), HasSubstr("from schema 3 to 4"));
  EXPECT_EQ(store->CursorOf("00000000000000aa").value(),
            (SegmentCursor{.ring = 17, .steps = 3, .steps_lost = 5}));
  EXPECT_TRUE(store->Stats("00000000000000aa").value().empty());
  RunBatch batch = BatchOf(0xaa);
  AddSnapshot(batch, 7);
  batch.cursor.stats = 9;
  ASSERT_TRUE(store->Commit({batch}, 1).ok());
  EXPECT_EQ(store->Stats("00000000000000aa").value().at(0).number(), 7u);
  EXPECT_EQ(store->CursorOf("00000000000000aa").value()->stats, 9u);
}

TEST_F(DatabaseFileTest, AMigratedDatabaseHasTheShapeOfANewOne) {
  Make(kVersion1);
  ASSERT_TRUE(Store::OpenForWriting(path_).ok());
  const std::vector<std::string> migrated = Shape();
  std::filesystem::remove(path_);
  ASSERT_TRUE(Store::OpenForWriting(path_).ok());
  EXPECT_EQ(migrated, Shape());
}

TEST_F(DatabaseFileTest, AToolAsksForTheDaemonWhenTheDatabaseIsOlder) {
  Make(kVersion1);
  const Result<Store> store = Store::OpenForReading(path_);
  EXPECT_EQ(store.status().kind(), ErrorKind::kUnsupported);
  EXPECT_THAT(store.status().message(), HasSubstr("start nanwatchd once"));
}

TEST_F(DatabaseFileTest, ANewerDatabaseIsRefusedAndLeftAsItIs) {
  Make("CREATE TABLE future (x); PRAGMA user_version = 99");
  for (const Status& refused :
       {Store::OpenForWriting(path_).status(), Store::OpenForReading(path_).status()}) {
    EXPECT_EQ(refused.kind(), ErrorKind::kUnsupported);
    EXPECT_THAT(refused.message(), HasSubstr("written by a newer nanwatch"));
  }
  EXPECT_THAT(Shape(), testing::ElementsAre("future.x"));
}

TEST_F(DatabaseFileTest, ADamagedDatabaseIsMovedAsideAndANewOneBegun) {
  std::ofstream(path_) << std::string(8192, 'x');
  const Result<Store> store = Store::OpenForWriting(path_);
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_THAT(store->opening_note(), HasSubstr("was damaged"));
  EXPECT_TRUE(store->Runs({}).value().empty());
  int kept = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
    kept += entry.path().string().find(".corrupt-") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(kept, 1);
}

TEST_F(DatabaseFileTest, ADatabaseWithSpoiltPagesIsMovedAside) {
  {
    Store store = *Store::OpenForWriting(path_);
    RunBatch batch = BatchOf(1);
    for (uint64_t i = 0; i < 1'000; ++i) AddRecord(batch, i);
    ASSERT_TRUE(store.Commit({batch}, 1).ok());
  }
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(8 * 4096);
  file << std::string(16 * 1024, '\xee');
  file.close();
  const Result<Store> store = Store::OpenForWriting(path_);
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_THAT(store->opening_note(), HasSubstr("was damaged"));
}

TEST_F(DatabaseFileTest, OfThoseMovedAsideTheOldestAndTheNewestStay) {
  for (const char* day : {"01", "02", "03"}) {
    for (const char* companion : {"", "-wal"}) {
      std::ofstream(path_ + ".corrupt-2026-01-" + day + "T00:00:00.000Z" + companion) << "x";
    }
  }
  std::ofstream(path_) << "x";
  const Result<std::string> aside = MoveAside(path_);
  ASSERT_TRUE(aside.ok());
  EXPECT_EQ(access(aside->c_str(), F_OK), 0);
  EXPECT_EQ(access((path_ + ".corrupt-2026-01-01T00:00:00.000Z-wal").c_str(), F_OK), 0)
      << "what was there before the trouble began";
  EXPECT_NE(access((path_ + ".corrupt-2026-01-02T00:00:00.000Z").c_str(), F_OK), 0);
  EXPECT_NE(access((path_ + ".corrupt-2026-01-03T00:00:00.000Z-wal").c_str(), F_OK), 0);
}

TEST_F(DatabaseFileTest, NobodyElseMayReadIt) {
  ASSERT_TRUE(Store::OpenForWriting(path_).ok());
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(DatabaseFileTest, SaysThatThereIsNoneYet) {
  EXPECT_EQ(Store::OpenForReading(path_).status().kind(), ErrorKind::kNotFound);
}

TEST(DatabaseFile, ThatCannotBeMovedWholeKeepsItsName) {
  TemporaryDirectory directory;
  const std::string path = directory / "nanwatch.db";
  for (const char* companion : {"", "-wal", "-shm"}) std::ofstream(path + companion) << companion;
  const Result<std::string> moved = MoveAsideBy(path, [&](const char* from, const char* to) {
    if (from != path) return rename(from, to);
    errno = EACCES;
    return -1;
  });
  EXPECT_EQ(moved.status().kind(), ErrorKind::kPermission);
  for (const char* companion : {"", "-wal", "-shm"})
    EXPECT_EQ(access((path + companion).c_str(), F_OK), 0) << companion;
  const Result<std::string> whole = MoveAsideBy(path, &rename);
  ASSERT_TRUE(whole.ok());
  for (const char* companion : {"", "-wal", "-shm"}) {
    EXPECT_NE(access((path + companion).c_str(), F_OK), 0) << companion;
    EXPECT_EQ(access((*whole + companion).c_str(), F_OK), 0) << companion;
  }
}

TEST(DatabaseFile, IsCheckedToItsLastPage) {
  TemporaryDirectory directory;
  const std::string path = directory / "nanwatch.db";
  ASSERT_TRUE(Store::OpenForWriting(path).ok());
  EXPECT_TRUE(CheckDatabase(path).ok());
  const auto bytes = std::filesystem::file_size(path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(bytes - 4'096));
  file.write(std::string(4'096, '\x5a').data(), 4'096);
  file.close();
  EXPECT_EQ(CheckDatabase(path).kind(), ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace nanwatch
