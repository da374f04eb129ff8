// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include "daemon/base/unique_fd.h"
#include "daemon/store/outbox_marker.h"
#include "fleet.pb.h"
#include "tests/daemon/store/outbox_fixture.h"

namespace nanwatch {
namespace {

class OutboxDamage : public OutboxTest {
 protected:
  Store OpenListening(uint64_t now_ns) {
    return Open(dir_.path(), now_ns,
                {.on_damage = [this](const std::string& line) { said_.push_back(line); }});
  }
  static void Put(Store& store, uint64_t nonce, uint64_t ticket, uint64_t now_ns) {
    RunBatch batch = BatchOf(nonce, "train");
    AddRecord(batch, ticket);
    const Status done = store.Commit({batch}, now_ns);
    ASSERT_TRUE(done.ok()) << done.message();
  }
  void Execute(const char* sql) const {
    const Result<Database> database =
        Database::Open(DatabasePath(dir_.path()), Database::Access::kWrite);
    ASSERT_TRUE(database.ok());
    const Status done = database->Execute(sql);
    ASSERT_TRUE(done.ok()) << done.message();
  }
  [[nodiscard]] int64_t Ask(const char* sql) const {
    const Result<Database> database =
        Database::Open(DatabasePath(dir_.path()), Database::Access::kWrite);
    const Result<int64_t> answer = database->Ask(sql);
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    return answer.ok() ? *answer : -1;
  }
  // Writes nonsense over the first page of a table.
  void Spoil(const std::string& table) const {
    (void)Ask("PRAGMA wal_checkpoint(TRUNCATE)");
    const std::string root = "SELECT rootpage FROM sqlite_master WHERE name = '" + table + "'";
    const int64_t page = Ask(root.c_str());
    const int64_t bytes = Ask("PRAGMA page_size");
    const UniqueFd file(open(DatabasePath(dir_.path()).c_str(), O_WRONLY | O_CLOEXEC));
    const std::string nonsense(static_cast<size_t>(bytes), '\xee');
    ASSERT_EQ(pwrite(file.get(), nonsense.data(), nonsense.size(), (page - 1) * bytes), bytes);
  }
  [[nodiscard]] RunFacts StateOf(uint64_t nonce) const {
    RunFacts state;
    for (const FleetRow& row : Pending()) {
      if (row.kind == FleetKind::kRun && row.run == RunId(nonce)) state.ParseFromString(row.body);
    }
    return state;
  }

  std::vector<std::string> said_;
};

TEST_F(OutboxDamage, RecordingGoesOnWithoutAnOutboxOfWhichATableIsGone) {
  Store store = OpenListening(kNowNs);
  Put(store, 7, 0, kNowNs);
  Execute("DROP TABLE outbox");
  for (uint64_t ticket = 1; ticket < 5; ++ticket) Put(store, 7, ticket, kNowNs + kSecondNs);
  const RunBatch batch = BatchOf(7, "train");
  EXPECT_TRUE(store.ReplaceIncidents("train", {IncidentOf(batch, "aten::log")}).ok());
  EXPECT_TRUE(store.EndRun(RunId(7), kNowNs + kSecondNs).ok());
  EXPECT_EQ(store.Facts(RunId(7))->records_size(), 5);
  EXPECT_EQ(store.Incidents("train")->size(), 1u);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("is damaged"), std::string::npos) << said_[0];
  const Result<OutboxReader> reader = OutboxReader::Open(dir_.path());
  EXPECT_EQ(reader->IsKept().kind(), ErrorKind::kNotFound);
  EXPECT_NE(reader->IsKept().message().find("damaged"), std::string::npos);
}

TEST_F(OutboxDamage, RecordingGoesOnWithoutAnOutboxWhosePagesMakeNoSense) {
  Store store = OpenListening(kNowNs);
  Put(store, 7, 0, kNowNs);
  Spoil("outbox_findings");
  // So that the daemon reads its pages anew.
  Execute("CREATE TABLE stir (a INTEGER); DROP TABLE stir");
  RunBatch batch = BatchOf(7, "train");
  AddRecord(batch, 1);
  // SQLite may fail the transaction in which it met the page; the daemon repeats it.
  const bool is_in = store.Commit({batch}, kNowNs + kSecondNs).ok();
  ASSERT_TRUE(is_in || store.Commit({batch}, kNowNs + kSecondNs).ok());
  for (uint64_t ticket = 2; ticket < 5; ++ticket) Put(store, 7, ticket, kNowNs + kSecondNs);
  EXPECT_EQ(store.Facts(RunId(7))->records_size(), 5);
  EXPECT_EQ(OutboxReader::Open(dir_.path())->IsKept().kind(), ErrorKind::kNotFound);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("malformed"), std::string::npos) << said_[0];
}

TEST_F(OutboxDamage, OneThatIsMadeAnewSaysWhatDidNotArrive) {
  {
    Store store = OpenListening(kNowNs);
    Put(store, 7, 0, kNowNs);
    Execute("DROP TABLE outbox");
    Put(store, 7, 1, kNowNs + kSecondNs);
  }
  Store store = OpenListening(kNowNs + 10 * kSecondNs);
  EXPECT_NE(note_.find("damaged"), std::string::npos) << note_;
  EXPECT_TRUE(OutboxReader::Open(dir_.path())->IsKept().ok());
  Put(store, 7, 2, kNowNs + 20 * kSecondNs);
  EXPECT_EQ(said_.size(), 1u);
  EXPECT_EQ(OutboxReader::Open(dir_.path())->Loss()->outboxes(), 1u);
  Put(store, 7, 3, kNowNs + 30 * kSecondNs);
  EXPECT_EQ(StateOf(7).findings_sent(), 2u);
  EXPECT_EQ(StateOf(7).state().records_dropped(), 2u);
}

TEST_F(OutboxDamage, WhatWasRecordedWhileItWasOffIsLostToTheFleet) {
  {
    Store store = OpenListening(kNowNs);
    Put(store, 7, 0, kNowNs);
  }
  {
    Result<Store> without = Store::OpenForWriting(DatabasePath(dir_.path()));
    ASSERT_TRUE(without.ok() && without->LeaveOutbox(kNowNs + kSecondNs).ok());
    Put(*without, 8, 0, kNowNs + 2 * kSecondNs);
    EXPECT_EQ(OutboxReader::Open(dir_.path())->IsKept().kind(), ErrorKind::kNotFound);
  }
  Store store = OpenListening(kNowNs + 10 * kSecondNs);
  EXPECT_EQ(note_, "");
  Put(store, 8, 1, kNowNs + 20 * kSecondNs);
  EXPECT_EQ(StateOf(8).state().records_dropped(), 1u);
  EXPECT_TRUE(OutboxReader::Open(dir_.path())->IsKept().ok());
}

TEST_F(OutboxDamage, OneThatCannotBeOpenedForNowIsOpenedBeforeAnythingIsWritten) {
  Result<Store> store = Store::OpenForWriting(DatabasePath(dir_.path()));
  ASSERT_TRUE(store.ok());
  Put(*store, 7, 0, kNowNs);
  ASSERT_TRUE(store->LimitSize(1).ok());
  EXPECT_EQ(store->KeepOutbox(kNowNs, {}).status().kind(), ErrorKind::kFull);
  EXPECT_EQ(store->EndRun(RunId(7), kNowNs).kind(), ErrorKind::kFull);
  EXPECT_FALSE(store->FindRun(RunId(7))->state.ended()) << "the fleet would not hear of it";
  ASSERT_TRUE(store->LimitSize(uint64_t{1} << 30).ok());
  Put(*store, 7, 1, kNowNs + kSecondNs);
  Put(*store, 7, 2, kNowNs + 20 * kSecondNs);
  EXPECT_EQ(StateOf(7).findings_sent(), 2u);
  EXPECT_EQ(StateOf(7).state().records_dropped(), 1u);
  EXPECT_TRUE(OutboxReader::Open(dir_.path())->IsKept().ok());
}

TEST_F(OutboxDamage, OneThatIsDamagedWhenItIsOpenedIsMadeAnewAtOnce) {
  {
    Store store = OpenListening(kNowNs);
    Put(store, 7, 0, kNowNs);
  }
  Execute("DROP TABLE outbox_launch; CREATE TABLE outbox_launch (nonsense INTEGER)");
  Store store = OpenListening(kNowNs + 10 * kSecondNs);
  EXPECT_NE(note_.find("damaged"), std::string::npos) << note_;
  Put(store, 7, 1, kNowNs + 20 * kSecondNs);
  Put(store, 7, 2, kNowNs + 30 * kSecondNs);
  EXPECT_EQ(StateOf(7).findings_sent(), 2u);
  EXPECT_EQ(StateOf(7).state().records_dropped(), 1u) << "what waited is gone";
}

TEST_F(OutboxDamage, OneThatCannotBeMadeAnewIsMarkedAsOff) {
  {
    Store store = OpenListening(kNowNs);
    Put(store, 7, 0, kNowNs);
  }
  // Neither readable nor to be dropped.
  Execute("DROP TABLE outbox_launch; CREATE VIEW outbox_launch AS SELECT 1 AS nonsense");
  {
    Result<Store> store = Store::OpenForWriting(DatabasePath(dir_.path()));
    ASSERT_TRUE(store.ok());
    EXPECT_EQ(store->KeepOutbox(kNowNs + kSecondNs, {}).status().kind(), ErrorKind::kInvalid);
    Put(*store, 8, 0, kNowNs + 2 * kSecondNs);
    EXPECT_EQ(OutboxReader::Open(dir_.path())->IsKept().kind(), ErrorKind::kNotFound);
  }
  Execute("DROP VIEW outbox_launch");
  Store store = OpenListening(kNowNs + 10 * kSecondNs);
  Put(store, 8, 1, kNowNs + 20 * kSecondNs);
  EXPECT_EQ(StateOf(8).state().records_dropped(), 1u);
}

TEST_F(OutboxDamage, WhereThereIsNoRoomForItsMarkerItIsMarkedLater) {
  Store store = OpenListening(kNowNs);
  Put(store, 7, 0, kNowNs);
  Execute("DROP TABLE outbox; DROP TABLE outbox_marker; VACUUM");
  ASSERT_TRUE(store.LimitSize(1).ok());
  EXPECT_EQ(store.EndRun(RunId(7), kNowNs).kind(), ErrorKind::kFull);
  EXPECT_FALSE(store.FindRun(RunId(7))->state.ended());
  ASSERT_TRUE(store.LimitSize(uint64_t{1} << 30).ok());
  EXPECT_TRUE(store.EndRun(RunId(7), kNowNs).ok());
  EXPECT_EQ(Ask("SELECT COUNT(*) FROM outbox_marker WHERE is_kept = 0 AND damage <> ''"), 1);
  EXPECT_EQ(said_.size(), 1u);
}

TEST_F(OutboxDamage, ADamagedMarkerIsReplaced) {
  {
    Store store = OpenListening(kNowNs);
    Put(store, 7, 0, kNowNs);
  }
  Execute("DROP TABLE outbox_marker; CREATE TABLE outbox_marker (nonsense INTEGER)");
  Store store = OpenListening(kNowNs + 10 * kSecondNs);
  Put(store, 7, 1, kNowNs + 20 * kSecondNs);
  EXPECT_EQ(StateOf(7).state().records_dropped(), 1u);
  EXPECT_TRUE(OutboxReader::Open(dir_.path())->IsKept().ok());
}

TEST_F(OutboxDamage, ThatARunEndedWhileItWasOffIsSaidAtOnce) {
  {
    Store store = OpenListening(kNowNs);
    for (const uint64_t nonce : {7, 8})
      ASSERT_TRUE(store.Commit({BatchOf(nonce, "train")}, kNowNs).ok());
    Put(store, 9, 0, kNowNs);
    Put(store, 9, 1, kNowNs + 3 * kSecondNs);
  }
  {
    Result<Store> without = Store::OpenForWriting(DatabasePath(dir_.path()));
    ASSERT_TRUE(without.ok() && without->LeaveOutbox(kNowNs + 10 * kSecondNs).ok());
    RunBatch last = BatchOf(7, "train");
    last.state.set_ended(true);
    ASSERT_TRUE(without->Commit({last}, kNowNs + 12 * kSecondNs).ok());
    ASSERT_TRUE(without->EndRun(RunId(8), kNowNs).ok()) << "as when the host was restarted";
    ASSERT_TRUE(without->EndRun(RunId(9), kNowNs + 12 * kSecondNs).ok());
  }
  const Store store = OpenListening(kNowNs + 20 * kSecondNs);
  for (const uint64_t nonce : {7, 8, 9}) {
    EXPECT_TRUE(StateOf(nonce).state().ended()) << nonce;
    EXPECT_EQ(StateOf(nonce).state().records_dropped(), 0u) << nonce;
  }
  EXPECT_EQ(StateOf(9).findings_sent(), 2u);
}

TEST_F(OutboxDamage, ADatabaseWithoutAnOutboxHasNothingToLeave) {
  Result<Store> store = Store::OpenForWriting(DatabasePath(dir_.path()));
  ASSERT_TRUE(store.ok() && store->LeaveOutbox(kNowNs).ok());
  EXPECT_EQ(Ask("SELECT COUNT(*) FROM sqlite_master WHERE name LIKE 'outbox%'"), 0);
}

}  // namespace
}  // namespace nanwatch
