// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/outbox.h"

#include <filesystem>
#include <utility>

#include "tests/daemon/store/outbox_fixture.h"

namespace nanwatch {
namespace {

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

TEST_F(OutboxTest, ALaunchIsFoundOutOnceAndKept) {
  int asked = 0;
  const auto launch_of = [&asked](const nanwatch::Run&) {
    return "launch" + std::to_string(++asked);
  };
  {
    Store store = Open(dir_.path(), kNowNs, {.launch_of = launch_of});
    ASSERT_TRUE(store.Commit({BatchOf(7, "train")}, kNowNs).ok());
    ASSERT_TRUE(store.Commit({BatchOf(7, "train")}, kNowNs + 20 * kSecondNs).ok());
    EXPECT_EQ(Pending()[0].launch, "launch1");
  }
  // By now the process may be gone.
  Store store = Open(dir_.path(), kNowNs + 30 * kSecondNs);
  ASSERT_TRUE(store.EndRun(RunId(7), kNowNs + 40 * kSecondNs).ok());
  const std::vector<FleetRow> rows = Pending();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].launch, "launch1");
  EXPECT_EQ(asked, 1);
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

TEST_F(OutboxTest, WhatWasSentIsKeptForTwoDays) {
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
  const auto kinds_at = [&](Store& at, uint64_t seconds) {
    EXPECT_TRUE(at.Commit({BatchOf(7, "train")}, kNowNs + seconds * kSecondNs).ok());
    return KindsOf(Pending());
  };
  const std::vector<FleetKind> both = {FleetKind::kRun, FleetKind::kFindings};
  const std::vector<FleetKind> state = {FleetKind::kRun};
  constexpr uint64_t kTwoDays = 2 * 86'400;
  EXPECT_EQ(kinds_at(store, 2), both);
  EXPECT_EQ(kinds_at(store, kTwoDays - 60), both);
  // Its sender was told that it is lost: it is to be sent again, and is not old.
  ASSERT_TRUE(WriteSent(dir_.path(), {}).ok());
  EXPECT_EQ(kinds_at(store, 2 * kTwoDays), both);
  ASSERT_TRUE(WriteSent(dir_.path(), sent).ok());
  {
    Store other = Open(dir_.path(), kNowNs + 2 * kTwoDays * kSecondNs);
    EXPECT_EQ(kinds_at(other, 2 * kTwoDays + 60), both) << "also when the daemon is started again";
  }
  // That far it was sent when the daemon was started again.
  EXPECT_EQ(kinds_at(store, 3 * kTwoDays - 60), both);
  EXPECT_EQ(kinds_at(store, 3 * kTwoDays + 900), state);
}

TEST_F(OutboxTest, AFileThatSaysNothingSendsAllAgain) {
  for (const char* text : {"", "nanwatch.sent/1 1 2 3", "nanwatch.sent/9 1 2 3 4", "1 2 3 4 5"}) {
    FILE* file = fopen(SentPath(dir_.path()).c_str(), "w");
    fputs(text, file);
    fclose(file);
    EXPECT_EQ(ReadSent(dir_.path()), SentUpTo{}) << text;
  }
}

TEST_F(OutboxTest, TheFileOfASenderSaysAllThatWasWritten) {
  // An identity whose parts are numbers, too.
  const SentMark step = {
      .at_real_ns = kNowNs,
      .up_to = {1, 2, 3, 4},
      .row = {
          .daemon = "12345678-9012-4345-a678-901234567890", .sequence = 4, .recorded_ns = kNowNs}};
  SentMark state = step;
  state.row.run_of_state = RunId(7);
  const RefusedRows refused = {.rows = 3, .runs = {{RunId(7), {.findings = 2, .records = 5}}}};
  for (const RefusedRows& counted : {RefusedRows(), RefusedRows{.rows = 3}, refused}) {
    ASSERT_TRUE(WriteSent(dir_.path(), step.up_to, counted, {step, state}).ok());
    EXPECT_EQ(ReadSent(dir_.path()), step.up_to);
    EXPECT_EQ(ReadRefused(dir_.path()), counted);
    EXPECT_EQ(ReadMarks(dir_.path()), (SentMarks{step, state}));
  }
}

TEST_F(OutboxTest, MarksOfASenderAreEverFurtherApart) {
  SentMarks marks;
  uint64_t now_ns = kNowNs;
  for (uint64_t i = 0; i < 100'000; ++i, now_ns += 2 * kSecondNs)
    AddMark(marks, {.at_real_ns = now_ns});
  EXPECT_LT(marks.size(), 60u);
  const uint64_t newest_ns = marks.back().at_real_ns;
  EXPECT_EQ(newest_ns, now_ns - 2 * kSecondNs);
  EXPECT_LE(newest_ns - marks.front().at_real_ns, kSentMarksKeptNs);
  EXPECT_GE(newest_ns - marks.front().at_real_ns, kSentMarksKeptNs / 3);
  for (size_t i = 1; i < marks.size(); ++i) {
    const uint64_t older_ns = newest_ns - marks[i - 1].at_real_ns;
    const uint64_t newer_ns = newest_ns - marks[i].at_real_ns;
    EXPECT_LE(older_ns - newer_ns, 4 * kSecondNs + older_ns * 2 / 3) << i;
  }
  // A clock that was set back.
  AddMark(marks, {.at_real_ns = kNowNs});
  EXPECT_EQ(marks.size(), 1u);
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
