// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <string>

#include "daemon/store/outbox_table.h"
#include "fleet.pb.h"
#include "tests/daemon/store/outbox_fixture.h"

namespace nanwatch {
namespace {

class OutboxBounds : public OutboxTest {};

TEST_F(OutboxBounds, AStormOfOneRunDoesNotHideTheFirstFindingsOfAnother) {
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

TEST_F(OutboxBounds, HasAtMostSoManyRows) {
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

TEST_F(OutboxBounds, ARunThatSendsNoEndOfRecordsSaysHowManyItLeftOut) {
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

TEST_F(OutboxBounds, WhatARunLostIsInItsStateAlsoWhenItHasEndedAndTheDaemonIsStartedAgain) {
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

TEST_F(OutboxBounds, CountsAgainAfterEachTransactionThatFailed) {
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

TEST_F(OutboxBounds, ADatabaseInThePlaceOfAnotherSaysThatRowsAreGone) {
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

TEST_F(OutboxBounds, NothingOfATransactionThatFailsIsInIt) {
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

TEST_F(OutboxBounds, StaysWithinItsBoundAndKeepsConclusionsLongest) {
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

// ---- what the state of a run says of its findings

class OutboxFindings : public OutboxTest {
 protected:
  // Commits one that is followed by a state.
  static void Put(Store& store, uint64_t ticket, uint64_t now_ns) {
    RunBatch batch = BatchOf(7, "train");
    AddRecord(batch, ticket);
    batch.state.set_ended(true);
    ASSERT_TRUE(store.Commit({batch}, now_ns).ok());
  }
  [[nodiscard]] RunFacts StateOf(uint64_t nonce) const {
    RunFacts state;
    for (const FleetRow& row : Pending()) {
      if (row.kind == FleetKind::kRun && row.run == RunId(nonce)) state.ParseFromString(row.body);
    }
    return state;
  }
  [[nodiscard]] uint64_t RowsOfFindings() const {
    return static_cast<uint64_t>(CountKinds(Pending())[FleetKind::kFindings]);
  }
};

TEST_F(OutboxFindings, AStateSaysHowManyRowsAreOnTheirWay) {
  {
    Store store = Open(dir_.path());
    for (uint64_t ticket = 0; ticket < 3; ++ticket) Put(store, ticket, kNowNs);
    EXPECT_EQ(StateOf(7).findings_sent(), 3u);
    // Acknowledged, they need not be in the outbox.
    SentUpTo sent{};
    sent.fill(Pending().back().sequence);
    ASSERT_TRUE(WriteSent(dir_.path(), sent).ok());
  }
  Store store = Open(dir_.path(), kNowNs + 10 * kSecondNs, {.kept_ns = 0});
  Put(store, 3, kNowNs + 10 * kSecondNs);
  EXPECT_EQ(StateOf(7).findings_sent(), 4u) << "also when the daemon is started again";
  EXPECT_EQ(RowsOfFindings(), 1u);
}

TEST_F(OutboxFindings, ThoseThatWereLetGoOfAreNotOnTheirWay) {
  Store store = Open(dir_.path(), kNowNs, {.bytes_max = 8'000});
  uint64_t now_ns = kNowNs;
  for (uint64_t ticket = 0; ticket < 100; ++ticket, now_ns += kSecondNs) Put(store, ticket, now_ns);
  RunBatch ended = BatchOf(7, "train");
  ended.state.set_ended(true);
  ASSERT_TRUE(store.Commit({ended}, now_ns + 20 * kSecondNs).ok());
  EXPECT_LT(RowsOfFindings(), 60u);
  EXPECT_EQ(StateOf(7).findings_sent(), RowsOfFindings());
  EXPECT_EQ(StateOf(7).state().records_dropped(), 100 - RowsOfFindings());
}

TEST_F(OutboxFindings, ThoseThatWereRefusedAreCountedAndNotOnTheirWay) {
  const RefusedRows refused = {.rows = 3, .runs = {{RunId(7), {.findings = 2, .records = 5}}}};
  {
    Store store = Open(dir_.path());
    for (uint64_t ticket = 0; ticket < 3; ++ticket) Put(store, ticket, kNowNs);
    ASSERT_TRUE(WriteSent(dir_.path(), SentUpTo{}, refused).ok());
    EXPECT_EQ(ReadRefused(dir_.path()), refused);
    // Another run's news make the daemon say so.
    ASSERT_TRUE(store.Commit({BatchOf(8, "train")}, kNowNs + 20 * kSecondNs).ok());
    EXPECT_EQ(StateOf(7).findings_sent(), 1u);
    EXPECT_EQ(StateOf(7).state().records_dropped(), 5u);
    EXPECT_EQ(OutboxReader::Open(dir_.path())->Loss()->refused(), 3u);
    EXPECT_EQ(CountKinds(Pending())[FleetKind::kLoss], 1);
  }
  // It is kept where the sender's file is gone.
  ASSERT_TRUE(WriteSent(dir_.path(), SentUpTo{}).ok());
  Store store = Open(dir_.path(), kNowNs + 40 * kSecondNs);
  Put(store, 3, kNowNs + 40 * kSecondNs);
  EXPECT_EQ(StateOf(7).findings_sent(), 2u);
  EXPECT_EQ(StateOf(7).state().records_dropped(), 5u);
  EXPECT_EQ(OutboxReader::Open(dir_.path())->Loss()->refused(), 3u);
}

TEST_F(OutboxFindings, ThoseThatWereSentMakeRoomForOthersAndAreNoLoss) {
  Store store = Open(dir_.path(), kNowNs, {.rows_max = 200});
  SentUpTo sent{};
  uint64_t now_ns = kNowNs;
  for (uint64_t ticket = 0; ticket < 500; ++ticket, now_ns += kSecondNs) {
    Put(store, ticket, now_ns);
    if (ticket == 420) {
      sent.fill(Pending().back().sequence);
      ASSERT_TRUE(WriteSent(dir_.path(), sent).ok());
    }
    if (ticket > 190 && ticket < 420) {
      // Slowly: it is sent just in time.
      sent.fill(Pending()[100].sequence);
      ASSERT_TRUE(WriteSent(dir_.path(), sent).ok());
    }
  }
  EXPECT_GT(RowsOfFindings(), 100u) << "some that were sent are there, and all that were not";
  EXPECT_EQ(OutboxReader::Open(dir_.path())->Loss()->findings(), 0u);
  EXPECT_EQ(StateOf(7).findings_sent(), 500u);
  // Without anybody who sends, others go, and that is said.
  for (uint64_t ticket = 500; ticket < 800; ++ticket, now_ns += kSecondNs)
    Put(store, ticket, now_ns);
  EXPECT_GT(OutboxReader::Open(dir_.path())->Loss()->findings(), 150u);
}

TEST_F(OutboxFindings, OnlyRunsOfWhichMoreWasRefusedSaySo) {
  Store store = Open(dir_.path(), kNowNs, {.kept_ns = 0});
  for (const uint64_t nonce : {7, 8})
    ASSERT_TRUE(store.Commit({BatchOf(nonce, "train")}, kNowNs).ok());
  RefusedRows refused = {.rows = 2,
                         .runs = {{RunId(7), {.findings = 1, .records = 2}},
                                  {RunId(8), {.findings = 1, .records = 2}}}};
  SentUpTo sent{};
  uint64_t now_ns = kNowNs;
  // The states that another run's news bring.
  const auto states = [&] {
    for (const FleetRow& row : Pending()) {
      for (uint64_t& lane : sent) lane = std::max(lane, row.sequence);
    }
    EXPECT_TRUE(WriteSent(dir_.path(), sent, refused).ok());
    now_ns += 20 * kSecondNs;
    EXPECT_TRUE(store.Commit({BatchOf(9, "train")}, now_ns).ok());
    std::set<std::string> runs;
    for (const FleetRow& row : Pending()) {
      if (row.kind == FleetKind::kRun) runs.insert(row.run);
    }
    return runs;
  };
  EXPECT_EQ(states(), (std::set<std::string>{RunId(7), RunId(8), RunId(9)}));
  refused.rows = 3;
  refused.runs[RunId(8)].records = 3;
  EXPECT_EQ(states(), (std::set<std::string>{RunId(8), RunId(9)}));
  refused.rows = 4;
  EXPECT_EQ(states(), (std::set<std::string>{RunId(9)})) << "of a state, which counts for no run";
}

}  // namespace
}  // namespace nanwatch
