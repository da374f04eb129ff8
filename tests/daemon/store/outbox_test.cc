// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/outbox.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <utility>

#include "daemon/base/directories.h"
#include "daemon/store/database_file.h"
#include "daemon/store/store.h"
#include "fleet.pb.h"
#include "tests/daemon/store/batch_builder.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kNowNs = uint64_t{1'764'203'000} * kSecondNs;

class OutboxTest : public testing::Test {
 protected:
  static Store Open(const std::string& state_dir, uint64_t now_ns = kNowNs,
                    OutboxOptions options = {}) {
    Result<Store> store = Store::OpenForWriting(DatabasePath(state_dir));
    EXPECT_TRUE(store.ok()) << store.status().message();
    const Result<std::string> note = store->KeepOutbox(now_ns, options);
    EXPECT_TRUE(note.ok()) << note.status().message();
    note_ = *note;
    return *std::move(store);
  }
  static std::vector<FleetRow> Pending(const std::string& state_dir, const SentUpTo& sent = {}) {
    const Result<OutboxReader> reader = OutboxReader::Open(state_dir);
    EXPECT_TRUE(reader.ok()) << reader.status().message();
    const Result<std::vector<FleetRow>> rows = reader->Pending(sent, 1'000'000, size_t{1} << 30);
    EXPECT_TRUE(rows.ok()) << rows.status().message();
    for (const FleetRow& row : *rows) EXPECT_EQ(WhatIsWrong(row), "");
    return *rows;
  }
  std::vector<FleetRow> Pending() const { return Pending(dir_.path()); }
  static std::vector<FleetKind> KindsOf(const std::vector<FleetRow>& rows) {
    std::vector<FleetKind> kinds;
    for (const FleetRow& row : rows) kinds.push_back(row.kind);
    return kinds;
  }
  static std::map<FleetKind, int> CountKinds(const std::vector<FleetRow>& rows) {
    std::map<FleetKind, int> counts;
    for (const FleetRow& row : rows) ++counts[row.kind];
    return counts;
  }
  static Incident IncidentOf(const RunBatch& batch, const std::string& op) {
    Incident incident;
    incident.mutable_origin()->set_run(batch.run_id);
    incident.mutable_origin()->set_op(op);
    return incident;
  }

  TemporaryDirectory dir_;
  static inline std::string note_;
};

TEST_F(OutboxTest, IsNotThereUnlessItWasAskedFor) {
  Result<Store> store = Store::OpenForWriting(DatabasePath(dir_.path()));
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE(store->Commit({BatchOf(1)}, kNowNs).ok());
  const Result<OutboxReader> reader = OutboxReader::Open(dir_.path());
  ASSERT_EQ(reader.status().kind(), ErrorKind::kNotFound);
  EXPECT_NE(reader.status().message().find("NANWATCH_OUTBOX=1"), std::string::npos);
}

TEST_F(OutboxTest, HoldsTheFactsAsTheyWereCommitted) {
  Store store = Open(dir_.path());
  RunBatch batch = BatchOf(7, "train");
  batch.run.set_rank(3);
  AddSite(batch, 1, 1);
  batch.sites_new = 1;
  AddRecord(batch, 5);
  AddRecord(batch, 6);
  AddStep(batch, 0);
  batch.training.emplace().set_next_index(1);
  ASSERT_TRUE(store.Commit({batch}, kNowNs).ok());
  const std::vector<FleetRow> rows = Pending();
  ASSERT_EQ(KindsOf(rows),
            (std::vector<FleetKind>{FleetKind::kRun, FleetKind::kFindings, FleetKind::kStep}));
  for (const FleetRow& row : rows) {
    EXPECT_EQ(row.job, "train");
    EXPECT_EQ(row.run, batch.run_id);
    EXPECT_EQ(row.rank, 3);
    EXPECT_EQ(row.recorded_ns, kNowNs);
  }
  RunFacts state;
  ASSERT_TRUE(state.ParseFromString(rows[0].body));
  RunFacts facts;
  ASSERT_TRUE(facts.ParseFromString(rows[1].body));
  MergeInto(facts, state);
  const Result<RunFacts> stored = store.Facts(batch.run_id);
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(facts.SerializeAsString(), stored->SerializeAsString());
}

TEST_F(OutboxTest, StepsAndStatesComeOnceInTenSeconds) {
  Store store = Open(dir_.path());
  for (uint64_t second = 0; second < 60; ++second) {
    RunBatch batch = BatchOf(7, "train");
    AddStep(batch, second);
    ASSERT_TRUE(store.Commit({batch}, kNowNs + second * kSecondNs).ok());
  }
  const std::vector<FleetRow> rows = Pending();
  // A state that waits is replaced.
  EXPECT_EQ(CountKinds(rows),
            (std::map<FleetKind, int>{{FleetKind::kRun, 1}, {FleetKind::kStep, 6}}));
  RunFacts facts;
  ASSERT_TRUE(facts.ParseFromString(rows[0].body));
  EXPECT_EQ(facts.steps(), 51u);
  RunBatch ended = BatchOf(7, "train");
  ended.state.set_ended(true);
  ASSERT_TRUE(store.Commit({ended}, kNowNs + 61 * kSecondNs).ok());
  ASSERT_TRUE(facts.ParseFromString(Pending()[0].body));
  EXPECT_TRUE(facts.state().ended());
}

TEST_F(OutboxTest, CountsOfKnownSitesComeWithTheStateAndAreNoRowsOfTheirOwn) {
  Store store = Open(dir_.path());
  ASSERT_TRUE(store.Commit({BatchOf(7, "train")}, kNowNs).ok());
  for (uint64_t second = 1; second <= 60; ++second) {
    RunBatch counted = BatchOf(7, "train");
    AddSite(counted, 1, 40 * second);
    ASSERT_TRUE(store.Commit({counted}, kNowNs + second * kSecondNs).ok());
  }
  const std::vector<FleetRow> rows = Pending();
  ASSERT_EQ(KindsOf(rows), (std::vector<FleetKind>{FleetKind::kRun}));
  RunFacts state;
  ASSERT_TRUE(state.ParseFromString(rows[0].body));
  ASSERT_EQ(state.sites_size(), 1);
  EXPECT_EQ(state.sites(0).count(), 2'400u);
}

TEST_F(OutboxTest, CountsOfAnIncidentReplaceItsRowThatWaits) {
  Store store = Open(dir_.path());
  RunBatch batch = BatchOf(7, "train");
  ASSERT_TRUE(store.Commit({batch}, kNowNs).ok());
  Incident incident = IncidentOf(batch, "aten::log");
  incident.mutable_origin()->set_ticket(5);
  uint64_t newest = 0;
  int changes = 0;
  for (uint64_t second = 0; second < 3'600; ++second) {
    incident.set_count(second + 1);
    incident.set_last_step(static_cast<int64_t>(second));
    ASSERT_TRUE(store.Commit({batch}, kNowNs + second * kSecondNs).ok());
    ASSERT_TRUE(store.ReplaceIncidents("train", {incident}).ok());
    if (second % 60 != 0 && second != 10) continue;
    const std::vector<FleetRow> rows = Pending();
    ASSERT_EQ(CountKinds(rows)[FleetKind::kIncident], 1);
    changes += std::exchange(newest, rows[0].sequence) != rows[0].sequence ? 1 : 0;
  }
  EXPECT_GT(changes, 3);
  EXPECT_LT(changes, 15) << "ever less often";
  // What is not a count comes at once.
  incident.add_reach("parameter");
  ASSERT_TRUE(store.ReplaceIncidents("train", {incident}).ok());
  EXPECT_EQ(Pending()[0].body, incident.SerializeAsString());
  // So do the last counts of a job that has ended.
  incident.set_count(9'999);
  ASSERT_TRUE(store.ReplaceIncidents("train", {incident}).ok());
  EXPECT_NE(Pending()[0].body, incident.SerializeAsString());
  batch.state.set_ended(true);
  ASSERT_TRUE(store.Commit({batch}, kNowNs + 3'600 * kSecondNs).ok());
  ASSERT_TRUE(store.ReplaceIncidents("train", {incident}).ok());
  EXPECT_EQ(Pending()[0].body, incident.SerializeAsString());
}

TEST_F(OutboxTest, AStormOfOneRunDoesNotHideTheFirstFindingsOfAnother) {
  Store store = Open(dir_.path(), kNowNs, {.bytes_max = 60'000});
  uint64_t now_ns = kNowNs;
  for (uint64_t ticket = 0; ticket < 600; ++ticket, now_ns += kSecondNs) {
    RunBatch storm = BatchOf(7, "train");
    AddRecord(storm, ticket);
    ASSERT_TRUE(store.Commit({storm}, now_ns).ok());
  }
  RunBatch later = BatchOf(8, "train");
  AddRecord(later, 1);
  ASSERT_TRUE(store.Commit({later}, now_ns).ok());
  RunFacts storm, other;
  RunFacts state;
  for (const FleetRow& row : Pending()) {
    RunFacts facts;
    ASSERT_TRUE(facts.ParseFromString(row.body));
    if (row.kind == FleetKind::kRun && row.run == RunId(7)) state = facts;
    if (row.kind == FleetKind::kFindings) (row.run == RunId(7) ? storm : other).MergeFrom(facts);
  }
  EXPECT_EQ(other.records_size(), 1);
  ASSERT_GT(storm.records_size(), 50);
  EXPECT_EQ(storm.records(0).ticket(), 0u);
  EXPECT_EQ(storm.records(storm.records_size() - 1).ticket(),
            static_cast<uint64_t>(storm.records_size()) - 1)
      << "the first ones, without a gap";
}

TEST_F(OutboxTest, HasAtMostSoManyRows) {
  Store store = Open(dir_.path(), kNowNs, {.rows_max = 100});
  for (uint64_t nonce = 1; nonce <= 300; ++nonce) {
    RunBatch batch = BatchOf(nonce, "train");
    AddStep(batch, 1);
    AddRecord(batch, 1);
    ASSERT_TRUE(store.Commit({batch}, kNowNs + nonce * kSecondNs).ok());
  }
  EXPECT_LE(Pending().size(), 101u);
  EXPECT_GT(Pending().size(), 90u);
}

TEST_F(OutboxTest, ARunThatSendsNoEndOfRecordsSaysHowManyItLeftOut) {
  Store store = Open(dir_.path());
  RunBatch batch = BatchOf(7, "train");
  for (uint64_t ticket = 0; ticket < kOutboxRecordsPerRunMax + 500; ++ticket)
    AddRecord(batch, ticket);
  ASSERT_TRUE(store.Commit({batch}, kNowNs).ok());
  RunFacts state;
  int records = 0;
  for (const FleetRow& row : Pending()) {
    RunFacts facts;
    ASSERT_TRUE(facts.ParseFromString(row.body));
    records += facts.records_size();
    if (row.kind == FleetKind::kRun) state = facts;
  }
  EXPECT_EQ(records, static_cast<int>(kOutboxRecordsPerRunMax));
  EXPECT_EQ(state.state().records_dropped(), 500u);
}

TEST_F(OutboxTest, WhatARunLostIsInItsStateAlsoWhenItHasEndedAndTheDaemonIsStartedAgain) {
  {
    Store store = Open(dir_.path(), kNowNs, {.bytes_max = 25'000});
    RunBatch first = BatchOf(7, "train");
    AddRecord(first, 1'000);
    ASSERT_TRUE(store.Commit({first}, kNowNs).ok());
    RunBatch ended = BatchOf(7, "train");
    for (uint64_t ticket = 0; ticket < 100; ++ticket) {
      AddRecord(ended, ticket);
      ended.records.back().mutable_value()->set_param(std::string(100, 'p'));
    }
    ended.state.set_ended(true);
    ASSERT_TRUE(store.Commit({ended}, kNowNs).ok());
    RunBatch other = BatchOf(8, "other");
    for (uint64_t ticket = 0; ticket < 100; ++ticket) {
      AddRecord(other, ticket);
      other.records.back().mutable_value()->set_param(std::string(150, 'p'));
    }
    ASSERT_TRUE(store.Commit({other}, kNowNs + kSecondNs).ok());
  }
  Store store = Open(dir_.path(), kNowNs + 2 * kSecondNs, {.bytes_max = 25'000});
  EXPECT_NE(note_.find("100 findings"), std::string::npos) << note_;
  ASSERT_TRUE(store.Commit({BatchOf(9)}, kNowNs + 3 * kSecondNs).ok());
  uint64_t dropped = 0;
  for (const FleetRow& row : Pending()) {
    RunFacts facts;
    ASSERT_TRUE(facts.ParseFromString(row.body));
    if (row.run == RunId(7) && row.kind == FleetKind::kRun)
      dropped = facts.state().records_dropped();
  }
  EXPECT_EQ(dropped, 100u);
}

TEST_F(OutboxTest, CountsAgainAfterEachTransactionThatFailed) {
  Store store = Open(dir_.path(), kNowNs, {.bytes_max = 100'000});
  RunBatch batch = BatchOf(7, "train");
  ASSERT_TRUE(store.Commit({batch}, kNowNs).ok());
  ASSERT_TRUE(store.LimitSize(1).ok());
  Incident large = IncidentOf(batch, "aten::log");
  large.set_expected_by(std::string(50'000, 'x'));
  for (int i = 0; i < 5; ++i)
    ASSERT_EQ(store.ReplaceIncidents("train", {large}).kind(), ErrorKind::kFull);
  ASSERT_TRUE(store.LimitSize(kDatabaseBytesMax).ok());
  // Had it counted what was rolled back, it would let go of the row that it has just got.
  ASSERT_TRUE(store.ReplaceIncidents("train", {large}).ok());
  EXPECT_EQ(CountKinds(Pending())[FleetKind::kIncident], 1);
  EXPECT_EQ(CountKinds(Pending())[FleetKind::kRun], 1);
  EXPECT_EQ(OutboxReader::Open(dir_.path())->Loss()->runs(), 0u);
}

TEST_F(OutboxTest, ADatabaseInThePlaceOfAnotherSaysThatRowsAreGone) {
  {
    Store store = Open(dir_.path());
    EXPECT_EQ(note_, "");
    ASSERT_TRUE(store.Commit({BatchOf(7, "train")}, kNowNs).ok());
  }
  ASSERT_TRUE(MoveAside(DatabasePath(dir_.path())).ok());
  Store store = Open(dir_.path(), kNowNs + kSecondNs);
  EXPECT_NE(note_.find("does not reach the fleet"), std::string::npos) << note_;
  ASSERT_TRUE(store.Commit({BatchOf(8, "train")}, kNowNs + 2 * kSecondNs).ok());
  OutboxLoss loss;
  for (const FleetRow& row : Pending()) {
    if (row.kind != FleetKind::kLoss) continue;
    ASSERT_TRUE(loss.ParseFromString(row.body));
  }
  EXPECT_EQ(loss.outboxes(), 1u);
  Open(dir_.path(), kNowNs + 3 * kSecondNs);
  EXPECT_EQ(note_, "") << "it is said once";
}

TEST_F(OutboxTest, WhatWasConcludedComesFirstAndOnce) {
  Store store = Open(dir_.path());
  RunBatch batch = BatchOf(7, "train");
  ASSERT_TRUE(store.Commit({batch}, kNowNs).ok());
  const Incident one = IncidentOf(batch, "aten::log");
  const Incident other = IncidentOf(batch, "aten::sqrt");
  ASSERT_TRUE(store.ReplaceIncidents("train", {one}).ok());
  ASSERT_TRUE(store.ReplaceIncidents("train", {one}).ok());
  ASSERT_TRUE(store.ReplaceIncidents("train", {other, one}).ok());
  Warning warning;
  warning.set_run(batch.run_id);
  ASSERT_TRUE(store.ReplaceWarnings("train", {warning}).ok());
  const std::vector<FleetRow> rows = Pending();
  ASSERT_EQ(KindsOf(rows), (std::vector<FleetKind>{FleetKind::kIncident, FleetKind::kIncident,
                                                   FleetKind::kWarning, FleetKind::kRun}));
  EXPECT_EQ(rows[0].body, one.SerializeAsString());
  EXPECT_EQ(rows[1].body, other.SerializeAsString());
}

TEST_F(OutboxTest, AStormOfFindingsComesInRowsThatAGathererTakes) {
  Store store = Open(dir_.path());
  RunBatch batch = BatchOf(7, "train");
  for (uint64_t ticket = 0; ticket < 5'000; ++ticket) {
    AddRecord(batch, ticket);
    batch.records.back().mutable_value()->set_param(std::string(200, 'p'));
  }
  ASSERT_TRUE(store.Commit({batch}, kNowNs).ok());
  int records = 0;
  for (const FleetRow& row : Pending()) {
    RunFacts facts;
    ASSERT_TRUE(facts.ParseFromString(row.body));
    records += facts.records_size();
  }
  EXPECT_EQ(records, 5'000);
  EXPECT_GT(CountKinds(Pending())[FleetKind::kFindings], 3);
}

TEST_F(OutboxTest, WhatWasSentIsRemovedByTheDaemon) {
  Store store = Open(dir_.path());
  RunBatch batch = BatchOf(7, "train");
  AddRecord(batch, 1);
  ASSERT_TRUE(store.Commit({batch}, kNowNs).ok());
  const std::vector<FleetRow> rows = Pending();
  ASSERT_EQ(rows.size(), 2u);
  SentUpTo sent{};
  sent[static_cast<size_t>(FleetLane::kFindings)] = rows[1].sequence;
  ASSERT_TRUE(WriteSent(dir_.path(), sent).ok());
  EXPECT_EQ(ReadSent(dir_.path()), sent);
  EXPECT_EQ(KindsOf(Pending(dir_.path(), sent)), (std::vector<FleetKind>{FleetKind::kRun}));
  ASSERT_TRUE(store.Commit({BatchOf(7, "train")}, kNowNs + 2 * kSecondNs).ok());
  EXPECT_EQ(KindsOf(Pending()), (std::vector<FleetKind>{FleetKind::kRun}));
}

TEST_F(OutboxTest, AFileThatSaysNothingSendsAllAgain) {
  for (const char* text : {"", "nanwatch.sent/1 1 2 3", "nanwatch.sent/9 1 2 3 4", "1 2 3 4 5"}) {
    FILE* file = fopen(SentPath(dir_.path()).c_str(), "w");
    fputs(text, file);
    fclose(file);
    EXPECT_EQ(ReadSent(dir_.path()), SentUpTo{}) << text;
  }
}

TEST_F(OutboxTest, NothingOfATransactionThatFailsIsInIt) {
  Store store = Open(dir_.path());
  ASSERT_TRUE(store.Commit({BatchOf(7, "train")}, kNowNs).ok());
  ASSERT_TRUE(store.LimitSize(1).ok());
  RunBatch large = BatchOf(8, "train");
  for (uint64_t ticket = 0; ticket < 10'000; ++ticket) AddRecord(large, ticket);
  ASSERT_EQ(store.Commit({large}, kNowNs).kind(), ErrorKind::kFull);
  EXPECT_EQ(Pending().size(), 1u);
  ASSERT_TRUE(store.LimitSize(kDatabaseBytesMax).ok());
  ASSERT_TRUE(store.Commit({large}, kNowNs).ok());
  EXPECT_EQ(CountKinds(Pending())[FleetKind::kRun], 2);
}

TEST_F(OutboxTest, StaysWithinItsBoundAndKeepsConclusionsLongest) {
  Store store = Open(dir_.path(), kNowNs, {.bytes_max = 40'000});
  uint64_t now_ns = kNowNs;
  RunBatch first = BatchOf(7, "train");
  AddStep(first, 0);
  AddRecord(first, 0);
  ASSERT_TRUE(store.Commit({first}, now_ns).ok());
  ASSERT_TRUE(store.ReplaceIncidents("train", {IncidentOf(first, "aten::log")}).ok());
  for (uint64_t i = 1; i < 300; ++i) {
    RunBatch batch = BatchOf(7, "train");
    AddStep(batch, i);
    AddRecord(batch, i);
    now_ns += 10 * kSecondNs;
    ASSERT_TRUE(store.Commit({batch}, now_ns).ok());
  }
  const std::vector<FleetRow> rows = Pending();
  size_t bytes = 0;
  for (const FleetRow& row : rows) bytes += row.body.size();
  EXPECT_LT(bytes, 40'000u);
  std::map<FleetKind, int> counts = CountKinds(rows);
  EXPECT_EQ(counts[FleetKind::kIncident], 1);
  EXPECT_EQ(counts[FleetKind::kRun], 1);
  EXPECT_EQ(counts[FleetKind::kStep], 0) << "steps go first";
  EXPECT_GT(counts[FleetKind::kFindings], 100) << "others only when no step is left";
  ASSERT_EQ(counts[FleetKind::kLoss], 1);
  OutboxLoss loss;
  RunFacts earliest;
  for (const FleetRow& row : rows) {
    if (row.kind == FleetKind::kLoss) {
      ASSERT_TRUE(loss.ParseFromString(row.body));
    } else if (row.kind == FleetKind::kFindings && earliest.records().empty()) {
      ASSERT_TRUE(earliest.ParseFromString(row.body));
    }
  }
  EXPECT_EQ(earliest.records(0).ticket(), 0u) << "the first findings explain";
  EXPECT_EQ(loss.conclusions() + loss.runs(), 0u);
  // The count is of a moment before the newest row.
  EXPECT_GE(loss.steps(), 298u);
  EXPECT_NEAR(static_cast<double>(loss.findings()), 300.0 - counts[FleetKind::kFindings], 2);
}

TEST_F(OutboxTest, NumbersNeverComeAgain) {
  uint64_t newest = 0;
  std::string daemon;
  // A clock that stands still, one that goes back by a year, one that goes on.
  for (const uint64_t now_ns : {kNowNs, kNowNs, kNowNs / 2, kNowNs + kSecondNs}) {
    Store store = Open(dir_.path(), now_ns);
    ASSERT_TRUE(store.Commit({BatchOf(7, "train")}, now_ns + 60 * kSecondNs).ok());
    const std::vector<FleetRow> rows = Pending();
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_GT(rows[0].sequence, newest);
    EXPECT_TRUE(daemon.empty() || daemon == rows[0].daemon);
    newest = rows[0].sequence;
    daemon = rows[0].daemon;
  }
}

TEST_F(OutboxTest, ABackupThatIsRestoredGoesOnWithNewNumbers) {
  const std::string path = DatabasePath(dir_.path());
  uint64_t lost = 0;
  {
    Store store = Open(dir_.path());
    ASSERT_TRUE(store.Commit({BatchOf(7, "train")}, kNowNs).ok());
  }
  std::filesystem::copy_file(path, path + ".backup");
  {
    Store store = Open(dir_.path(), kNowNs + kSecondNs);
    ASSERT_TRUE(store.Commit({BatchOf(8, "train")}, kNowNs + kSecondNs).ok());
    lost = Pending().back().sequence;
  }
  // In place, as cp does it: the file is the same, what is in it is not.
  std::filesystem::copy_file(path + ".backup", path,
                             std::filesystem::copy_options::overwrite_existing);
  Store store = Open(dir_.path(), kNowNs + 60 * kSecondNs);
  ASSERT_TRUE(store.Commit({BatchOf(9, "train")}, kNowNs + 60 * kSecondNs).ok());
  EXPECT_GT(Pending().back().sequence, lost);
}

TEST_F(OutboxTest, ACopyIsAnotherDaemonAndSendsWhatItFoundAsTheOriginal) {
  {
    Store store = Open(dir_.path());
    EXPECT_EQ(note_, "");
    ASSERT_TRUE(store.Commit({BatchOf(7, "train")}, kNowNs).ok());
  }
  const TemporaryDirectory copy;
  std::filesystem::copy_file(DatabasePath(dir_.path()), DatabasePath(copy.path()));
  Store store = Open(copy.path(), kNowNs + kSecondNs);
  EXPECT_NE(note_.find("is a copy of another daemon's"), std::string::npos) << note_;
  ASSERT_TRUE(store.Commit({BatchOf(8, "train")}, kNowNs + kSecondNs).ok());
  const std::vector<FleetRow> original = Pending();
  const std::vector<FleetRow> rows = Pending(copy.path());
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0], original[0]);
  EXPECT_NE(rows[1].daemon, rows[0].daemon);
  Open(copy.path(), kNowNs + 2 * kSecondNs);
  EXPECT_EQ(note_, "") << "it is said once";
}

}  // namespace
}  // namespace nanwatch
