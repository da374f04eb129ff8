// SPDX-License-Identifier: Apache-2.0
#include "tools/forwarder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "daemon/base/directories.h"
#include "daemon/fleet/otlp_logs.h"
#include "daemon/store/outbox.h"
#include "daemon/store/store.h"
#include "tests/daemon/store/batch_builder.h"
#include "tests/fakes/fake_clock.h"
#include "tests/tools/temporary_directory.h"

namespace nanwatch {
namespace {

class ForwarderTest : public testing::Test {
 protected:
  ForwarderTest() { store_ = OpenStore(); }

  Store OpenStore() {
    Result<Store> store = Store::OpenForWriting(DatabasePath(dir_.path()));
    EXPECT_TRUE(store.ok());
    EXPECT_TRUE(store->KeepOutbox(clock_.real_ns(), {}).ok());
    return *std::move(store);
  }
  // `findings`: an urgent row as well as the state.
  void Commit(uint64_t nonce, int findings) {
    RunBatch batch = BatchOf(nonce, "train");
    for (int i = 0; i < findings; ++i) AddRecord(batch, ticket_++);
    ASSERT_TRUE(store_->Commit({batch}, clock_.real_ns()).ok());
  }
  Forwarder Make(bool to_a_collector = false) {
    return Forwarder(
        {.state_dir = dir_.path(), .host = "host7", .to_a_collector = to_a_collector, .seed = 1},
        [this](const std::string& request, const HttpHeaders& headers) {
          return Take(request, headers);
        },
        clock_, [this](const std::string& line) { said_.push_back(line); });
  }
  size_t Waiting() {
    const Result<OutboxReader> reader = OutboxReader::Open(dir_.path());
    EXPECT_TRUE(reader.ok());
    return reader->Pending(ReadSent(dir_.path()), 1'000, size_t{1} << 30)->size();
  }
  Result<HttpReply> Take(const std::string& request, const HttpHeaders& headers) {
    ++requests_;
    const Result<DecodedLogs> logs = DecodeLogs(request);
    EXPECT_TRUE(logs.ok() && logs->rejected == 0);
    if (!unreachable_.ok()) return unreachable_;
    if (answers_left_ && (*answers_left_)-- <= 0) return Status(ErrorKind::kIo, "no route");
    HttpReply reply = {
        .status = status_, .retry_after_s = retry_after_s_, .headers = headers_, .body = body_};
    if (IsHeldMissing(headers)) reply.headers[kHeldRowHeader] = kRowIsMissing;
    for (const FleetRow& row : logs->rows) {
      if (refused_.contains(row.run))
        return HttpReply{.status = 400, .headers = headers_, .body = "no\n"};
    }
    if (logs->rows.size() > rows_max_)
      return HttpReply{.status = 413, .headers = headers_, .body = "too long\n"};
    if (status_ != 200) return reply;
    uint64_t rejected = 0;
    for (const FleetRow& row : logs->rows) {
      if (rejected_.contains(row.run)) {
        ++rejected;
      } else {
        got_.push_back(row);
      }
    }
    if (rejected > 0) reply.body = EncodeLogsAnswer(rejected, "not of this world");
    return reply;
  }
  // Of what it got. An older gatherer, or what is none, does not say it.
  [[nodiscard]] bool IsHeldMissing(const HttpHeaders& headers) const {
    if (!headers_.contains(kGathererHeader)) return false;
    for (const auto& [name, value] : headers) {
      EXPECT_EQ(name, kHeldRowHeader);
      const std::optional<HeldRow> held = ParseHeldRow(value);
      EXPECT_TRUE(held.has_value()) << value;
      return std::none_of(got_.begin(), got_.end(),
                          [&](const FleetRow& row) { return NameOf(row) == held; });
    }
    return false;
  }
  [[nodiscard]] size_t Distinct() const {
    std::set<uint64_t> sequences;
    for (const FleetRow& row : got_) sequences.insert(row.sequence);
    return sequences.size();
  }
  // Until nothing waits; how many requests that took.
  int StepAll(Forwarder& forwarder) {
    const int before = requests_;
    for (int i = 0; i < 10'000; ++i) {
      const uint64_t wait_ns = forwarder.Step();
      if (forwarder.is_done()) break;
      clock_.Advance(wait_ns);
    }
    return requests_ - before;
  }

  TemporaryDirectory dir_;
  FakeClock clock_;
  std::optional<Store> store_;
  uint64_t ticket_ = 0;
  int requests_ = 0;
  Status unreachable_;
  std::optional<int> answers_left_;  // before nobody answers any more
  int status_ = 200;
  int retry_after_s_ = 0;
  std::string body_;
  std::map<std::string, std::string> headers_ = {{kGathererHeader, kGathererVersion}};
  std::set<std::string> refused_;   // a request with a row of these runs is no good
  std::set<std::string> rejected_;  // rows of these are rejected, and others taken
  size_t rows_max_ = 1'000'000;
  std::vector<FleetRow> got_;
  std::vector<std::string> said_;
};

TEST_F(ForwarderTest, SendsEachRowOnceAlsoWhenItIsStartedAgain) {
  Commit(1, 3);
  {
    Forwarder forwarder = Make();
    EXPECT_EQ(StepAll(forwarder), 1);
    EXPECT_EQ(forwarder.acknowledged(), 2u);
    Commit(2, 1);
    EXPECT_EQ(StepAll(forwarder), 1);
  }
  Forwarder other = Make();
  EXPECT_EQ(StepAll(other), 1) << "it asks whether they are there";
  EXPECT_EQ(got_.size(), 4u);
  EXPECT_TRUE(said_.empty());
}

TEST_F(ForwarderTest, SendsAllThatWaitsAlsoWhereTheMarkerIsDamagedAndSaysSo) {
  Commit(1, 3);
  store_.reset();
  {
    const Result<Database> database =
        Database::Open(DatabasePath(dir_.path()), Database::Access::kWrite);
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE(database
                    ->Execute("DROP TABLE outbox_marker;"
                              "CREATE TABLE outbox_marker (nonsense INTEGER)")
                    .ok());
  }
  Forwarder forwarder = Make();
  clock_.Advance(2 * kForwardGatherNs);
  for (int i = 0; i < 10 && forwarder.trouble().ok(); ++i) clock_.Advance(forwarder.Step());
  EXPECT_EQ(got_.size(), 2u);
  EXPECT_EQ(Waiting(), 0u);
  EXPECT_FALSE(forwarder.is_done());
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("all that waited was sent, but whether the daemon still writes to the "
                          "outbox in " +
                          dir_.path() + " cannot be read ("),
            std::string::npos)
      << said_[0];
  EXPECT_NE(said_[0].find("): start nanwatchd again"), std::string::npos);
  (void)forwarder.Step();
  EXPECT_EQ(said_.size(), 1u) << "it is said once";
}

TEST_F(ForwarderTest, SaysThatItSendsAllAgainWhereItsFileIsDamaged) {
  Commit(1, 3);
  {
    Forwarder forwarder = Make();
    StepAll(forwarder);
  }
  ASSERT_EQ(got_.size(), 2u);
  FILE* file = fopen(SentPath(dir_.path()).c_str(), "w");
  fputs("nanwatch.sent/1 12", file);
  fclose(file);
  Forwarder forwarder = Make();
  StepAll(forwarder);
  EXPECT_EQ(got_.size(), 4u) << "nothing is lost: the receiver knows them";
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_EQ(said_[0], SentPath(dir_.path()) +
                          " is damaged: all that the outbox holds is sent again, and its receiver "
                          "knows what it has");
}

TEST_F(ForwarderTest, SendsAgainWhatTheOutboxHasWhereADatabaseLacksWhatItHad) {
  Commit(1, 3);
  Forwarder forwarder = Make();
  StepAll(forwarder);
  const std::vector<FleetRow> backup = got_;
  Commit(2, 1);
  StepAll(forwarder);
  const std::vector<FleetRow> before = got_;
  ASSERT_EQ(before.size(), 4u);
  got_ = backup;
  Commit(3, 1);
  StepAll(forwarder);
  EXPECT_EQ(Distinct(), 6u);
  for (const FleetRow& row : before) EXPECT_NE(std::count(got_.begin(), got_.end(), row), 0);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("lacks rows that it had taken"), std::string::npos) << said_[0];
  // From then on there is nothing to say.
  const size_t size = got_.size();
  Commit(4, 1);
  EXPECT_EQ(StepAll(forwarder), 1);
  EXPECT_EQ(got_.size(), size + 2);
  EXPECT_EQ(said_.size(), 1u);
}

TEST_F(ForwarderTest, AsksNowAndThenWhileNothingWaits) {
  Commit(1, 1);
  Forwarder forwarder = Make();
  StepAll(forwarder);
  got_.clear();
  uint64_t waited_ns = 0;
  while (got_.empty() && waited_ns < 2 * kForwardAskNs) {
    const uint64_t wait_ns = forwarder.Step();
    clock_.Advance(wait_ns);
    waited_ns += wait_ns;
  }
  EXPECT_EQ(got_.size(), 2u);
  EXPECT_GT(waited_ns, kForwardAskNs / 2);
  EXPECT_EQ(requests_, 4) << "two of them ask";
}

TEST_F(ForwarderTest, AsksAgainSoonWhereNobodyAnswered) {
  Commit(1, 1);
  Forwarder forwarder = Make();
  StepAll(forwarder);
  got_.clear();
  clock_.Advance(kForwardAskNs);
  answers_left_ = 0;
  const int before = requests_;
  const uint64_t begun_ns = clock_.monotonic_ns();
  while (clock_.monotonic_ns() - begun_ns < kForwardAskNs) clock_.Advance(forwarder.Step());
  EXPECT_GT(requests_ - before, 5);
  EXPECT_LT(requests_ - before, 30) << "ever less often";
  EXPECT_TRUE(said_.empty());
  answers_left_.reset();
  clock_.Advance(kForwardPauseMaxNs);
  StepAll(forwarder);
  EXPECT_EQ(got_.size(), 2u);
}

TEST_F(ForwarderTest, AsksWhenItIsStartedAgain) {
  Commit(1, 1);
  {
    Forwarder forwarder = Make();
    StepAll(forwarder);
  }
  got_.clear();
  unreachable_ = Status(ErrorKind::kIo, "no route");
  {
    Forwarder forwarder = Make();
    (void)forwarder.Step();
    EXPECT_TRUE(forwarder.is_done() && forwarder.trouble().ok()) << "nothing waits";
    EXPECT_TRUE(said_.empty());
  }
  unreachable_ = Status();
  Forwarder forwarder = Make();
  StepAll(forwarder);
  EXPECT_EQ(got_.size(), 2u);
}

TEST_F(ForwarderTest, DoesNotSendAllAgainAndAgain) {
  Commit(1, 1);
  Forwarder forwarder = Make();
  StepAll(forwarder);
  got_.clear();
  clock_.Advance(kForwardAskNs);
  StepAll(forwarder);
  ASSERT_EQ(got_.size(), 2u);
  // Lost once more within minutes: it is sent again, but not before its time.
  got_.clear();
  const uint64_t begun_ns = clock_.monotonic_ns();
  Commit(2, 1);
  StepAll(forwarder);
  EXPECT_EQ(got_.size(), 2u);
  EXPECT_EQ(said_.size(), 1u);
  while (got_.size() < 4 && clock_.monotonic_ns() - begun_ns < 100 * kForwardAgainNs)
    clock_.Advance(forwarder.Step());
  EXPECT_GT(clock_.monotonic_ns() - begun_ns, kForwardAgainNs / 2);
  EXPECT_EQ(got_.size(), 6u) << "two of them twice";
  EXPECT_EQ(said_.size(), 2u);
}

TEST_F(ForwarderTest, WhatIsRefusedAgainIsCountedAgain) {
  Commit(23, 3);
  Commit(1, 1);
  rejected_ = {RunId(23)};
  Forwarder forwarder = Make();
  StepAll(forwarder);
  ASSERT_EQ(ReadRefused(dir_.path()).rows, 2u);
  got_.clear();
  clock_.Advance(kForwardAskNs);
  StepAll(forwarder);
  EXPECT_EQ(Distinct(), 2u);
  // Some may be gone from the outbox meanwhile: too many rather than too few.
  EXPECT_EQ(ReadRefused(dir_.path()).rows, 4u);
}

TEST_F(ForwarderTest, GoesBackNoFurtherThanToWhatIsThere) {
  std::vector<FleetRow> backup;
  {
    Forwarder forwarder = Make();
    for (uint64_t nonce = 1; nonce <= 600; ++nonce) {
      Commit(nonce, 1);
      StepAll(forwarder);
      clock_.Advance(10 * kNsPerSecond);
      if (nonce == 500) backup = got_;
    }
  }
  const size_t lost = got_.size() - backup.size();
  got_ = backup;
  requests_ = 0;
  Forwarder forwarder = Make();
  StepAll(forwarder);
  EXPECT_EQ(Distinct(), 1'200u);
  EXPECT_LE(got_.size() - backup.size(), 2 * lost) << "and not all 1,200";
  EXPECT_LT(requests_, 40);
  EXPECT_EQ(said_.size(), 1u);
}

TEST_F(ForwarderTest, GoesOnGoingBackWhereNobodyAnsweredMeanwhile) {
  Forwarder forwarder = Make();
  for (uint64_t nonce = 1; nonce <= 50; ++nonce) {
    Commit(nonce, 1);
    StepAll(forwarder);
    clock_.Advance(10 * kNsPerSecond);
  }
  got_.resize(20);
  clock_.Advance(kForwardAskNs);
  answers_left_ = 3;  // the question, and two on the way back
  for (int i = 0; i < 5; ++i) clock_.Advance(forwarder.Step());
  EXPECT_FALSE(forwarder.trouble().ok());
  answers_left_.reset();
  StepAll(forwarder);
  EXPECT_EQ(Distinct(), 100u);
}

TEST_F(ForwarderTest, DoesNotAskForWhatAFleetMayHaveLetGoOf) {
  Commit(1, 1);
  Forwarder forwarder = Make();
  StepAll(forwarder);
  clock_.Advance(kSentMarksKeptNs + kNsPerSecond);
  got_.clear();
  StepAll(forwarder);
  EXPECT_TRUE(got_.empty());
  EXPECT_TRUE(said_.empty());
}

TEST_F(ForwarderTest, SendsFindingsAtOnceAndLetsStatesWaitForOthers) {
  Forwarder forwarder = Make();
  Commit(1, 0);
  clock_.Advance(2 * kForwardGatherNs);
  StepAll(forwarder);
  ASSERT_EQ(requests_, 1);
  Commit(2, 0);
  EXPECT_GT(forwarder.Step(), 0u);
  EXPECT_EQ(requests_, 1) << "a state alone waits";
  Commit(3, 1);
  (void)forwarder.Step();
  EXPECT_EQ(requests_, 2);
  EXPECT_EQ(got_.size(), 4u);
}

TEST_F(ForwarderTest, ConclusionsOvertakeWhatWaits) {
  for (uint64_t nonce = 1; nonce < 200; ++nonce) Commit(nonce, 50);
  Incident incident;
  incident.mutable_origin()->set_run(RunId(7));
  ASSERT_TRUE(store_->ReplaceIncidents("train", {incident}).ok());
  Forwarder forwarder = Make();
  StepAll(forwarder);
  ASSERT_FALSE(got_.empty());
  EXPECT_EQ(got_[0].kind, FleetKind::kIncident);
}

TEST_F(ForwarderTest, TriesAgainEverLaterWithinAMinuteAndSaysSoOnce) {
  Commit(1, 1);
  Forwarder forwarder = Make();
  unreachable_ = Status(ErrorKind::kIo, "no route");
  uint64_t longest_ns = 0;
  for (int i = 0; i < 20; ++i) {
    const uint64_t wait_ns = forwarder.Step();
    const uint64_t most_ns = std::min(kForwardPauseMaxNs, kForwardPauseNs << i);
    EXPECT_GE(wait_ns, most_ns / 2);
    EXPECT_LE(wait_ns, most_ns);
    longest_ns = std::max(longest_ns, wait_ns);
  }
  EXPECT_GT(longest_ns, kForwardPauseMaxNs / 2);
  unreachable_ = Status();
  EXPECT_EQ(StepAll(forwarder), 1);
  EXPECT_EQ(got_.size(), 2u);
  EXPECT_EQ(said_.size(), 2u);
}

TEST_F(ForwarderTest, WaitsAsLongAsItIsToldTo) {
  Commit(1, 1);
  Forwarder forwarder = Make();
  status_ = 429;
  retry_after_s_ = 90;
  EXPECT_EQ(forwarder.Step(), 90 * kNsPerSecond);
}

TEST_F(ForwarderTest, KeepsRowsWhateverAnswersThatIsNoGatherer) {
  Commit(1, 1);
  Forwarder forwarder = Make();
  headers_ = {{"server", "nginx"}, {"content-type", kOtlpType}};
  for (const int status : {200, 204, 301, 400, 401, 403, 404, 405, 413, 415, 421, 500, 503}) {
    status_ = status;
    for (int i = 0; i < 20; ++i) {
      EXPECT_GT(forwarder.Step(), 0u) << "it does not insist";
      EXPECT_FALSE(forwarder.is_done()) << status;
      EXPECT_FALSE(forwarder.trouble().ok()) << status;
    }
    EXPECT_EQ(Waiting(), 2u) << status;
  }
  EXPECT_EQ(forwarder.acknowledged() + forwarder.rejected(), 0u);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("no nanwatch-gather"), std::string::npos) << said_[0];
  status_ = 200;
  headers_ = {{kGathererHeader, kGathererVersion}};
  body_ = "<html>please log in</html>";
  EXPECT_GT(forwarder.Step(), 0u);
  EXPECT_FALSE(forwarder.trouble().ok());
  body_ = "";
  StepAll(forwarder);
  EXPECT_EQ(forwarder.acknowledged(), 2u);
}

TEST_F(ForwarderTest, KeepsRowsThatAGathererDoesNotRefuseForGood) {
  Commit(1, 1);
  Forwarder forwarder = Make();
  for (const int status : {301, 401, 403, 404, 405, 408, 415, 421, 429, 500, 503, 507}) {
    status_ = status;
    for (int i = 0; i < 5; ++i) EXPECT_GT(forwarder.Step(), 0u);
    EXPECT_EQ(Waiting(), 2u) << status;
  }
}

TEST_F(ForwarderTest, TakesTheWordOfACollectorOnlyWhereOneIsNamed) {
  Commit(1, 1);
  Forwarder forwarder = Make(/*to_a_collector=*/true);
  headers_ = {{"content-type", "text/html"}};
  EXPECT_GT(forwarder.Step(), 0u);
  headers_ = {{"content-type", "application/x-protobuf; charset=x"}};
  body_ = EncodeLogsAnswer(1, "its queue is full");
  EXPECT_GT(forwarder.Step(), 0u);
  EXPECT_EQ(Waiting(), 2u);
  body_ = "";
  StepAll(forwarder);
  EXPECT_EQ(forwarder.acknowledged(), 2u);
  EXPECT_EQ(Waiting(), 0u);
}

TEST_F(ForwarderTest, SendsLessAtOnceThroughAProxyThatTakesNoLongBodies) {
  for (uint64_t nonce = 1; nonce <= 20; ++nonce) Commit(nonce, 1);
  rows_max_ = 7;
  Forwarder forwarder = Make();
  const std::map<std::string, std::string> ours = headers_;
  headers_ = {};
  for (int i = 0; i < 10; ++i) clock_.Advance(forwarder.Step());
  EXPECT_EQ(Waiting(), 40u) << "nothing of a proxy's is believed";
  got_.clear();
  headers_ = ours;
  StepAll(forwarder);
  EXPECT_EQ(got_.size(), 40u);
  EXPECT_EQ(forwarder.rejected(), 0u);
}

TEST_F(ForwarderTest, PassesOverARowThatIsRefusedForGoodAndNoOther) {
  for (uint64_t nonce = 1; nonce <= 40; ++nonce) Commit(nonce, 1);
  refused_ = {RunId(23)};
  Forwarder forwarder = Make();
  StepAll(forwarder);
  EXPECT_EQ(got_.size(), 78u);
  EXPECT_EQ(forwarder.rejected(), 2u);
  EXPECT_EQ(said_.size(), 1u);
}

TEST_F(ForwarderTest, SendsLessAtOnceWhereThatIsTooMuch) {
  for (uint64_t nonce = 1; nonce <= 40; ++nonce) Commit(nonce, 1);
  rows_max_ = 7;
  Forwarder forwarder = Make();
  StepAll(forwarder);
  EXPECT_EQ(got_.size(), 80u);
  EXPECT_EQ(forwarder.rejected(), 0u);
}

TEST_F(ForwarderTest, FindsTheRowsThatAreRejectedAmongOthersAndCountsThemForTheirRun) {
  for (uint64_t nonce = 1; nonce <= 40; ++nonce) Commit(nonce, nonce == 23 ? 3 : 1);
  rejected_ = {RunId(23)};
  {
    Forwarder forwarder = Make();
    StepAll(forwarder);
    EXPECT_EQ(forwarder.acknowledged(), 78u);
    EXPECT_EQ(forwarder.rejected(), 2u);
    EXPECT_EQ(said_.size(), 1u);
  }
  EXPECT_EQ(Distinct(), 78u);
  // Its findings with three records, and its state: a newer one would be refused as well.
  RefusedRows expected = {.rows = 2, .runs = {{RunId(23), {.findings = 1, .records = 3}}}};
  EXPECT_EQ(ReadRefused(dir_.path()), expected);
  Commit(23, 2);
  Forwarder other = Make();
  StepAll(other);
  expected = {.rows = 3, .runs = {{RunId(23), {.findings = 2, .records = 5}}}};
  EXPECT_EQ(ReadRefused(dir_.path()), expected) << "started again, it counts on";
}

TEST_F(ForwarderTest, RowsThatAreAllRejectedTakeOneRequest) {
  for (uint64_t nonce = 1; nonce <= 400; ++nonce) {
    Commit(nonce, 1);
    rejected_.insert(RunId(nonce));
  }
  Forwarder forwarder = Make();
  EXPECT_EQ(StepAll(forwarder), 1);
  EXPECT_EQ(forwarder.rejected(), 800u);
  EXPECT_EQ(ReadRefused(dir_.path()).rows, 800u);
  EXPECT_EQ(ReadRefused(dir_.path()).runs.size(), kRefusedRunsMax);
}

TEST_F(ForwarderTest, GoesOnWithADatabaseThatWasMadeAnew) {
  Commit(1, 1);
  Forwarder forwarder = Make();
  StepAll(forwarder);
  store_.reset();
  ASSERT_TRUE(MoveAside(DatabasePath(dir_.path())).ok());
  EXPECT_GT(forwarder.Step(), 0u);
  EXPECT_EQ(forwarder.trouble().kind(), ErrorKind::kNotFound);
  store_ = OpenStore();
  Commit(2, 1);
  StepAll(forwarder);
  // And one that says that rows may be gone.
  EXPECT_EQ(got_.size(), 5u);
  EXPECT_NE(got_[0].daemon, got_.back().daemon);
}

TEST_F(ForwarderTest, SaysOnceThatTheDaemonKeepsNoOutboxAnyMoreAndSendsWhatItLeft) {
  Commit(1, 1);
  Forwarder forwarder = Make();
  clock_.Advance(kNsPerSecond);
  ASSERT_TRUE(store_->LeaveOutbox(clock_.real_ns()).ok());
  for (int i = 0; i < 20; ++i) {
    clock_.Advance(forwarder.Step());
    EXPECT_FALSE(forwarder.is_done());
  }
  EXPECT_EQ(got_.size(), 2u);
  EXPECT_EQ(forwarder.trouble().kind(), ErrorKind::kNotFound);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("keeps no outbox"), std::string::npos) << said_[0];
  store_.reset();
  store_ = OpenStore();
  Commit(2, 1);
  StepAll(forwarder);
  EXPECT_EQ(got_.size(), 5u) << "and what became of the first run";
  EXPECT_TRUE(forwarder.is_done() && forwarder.trouble().ok()) << forwarder.trouble().message();
  EXPECT_EQ(said_.size(), 1u);
}

TEST_F(ForwarderTest, SaysWhatTheOutboxLetGoOf) {
  ASSERT_TRUE(store_->KeepOutbox(clock_.real_ns(), {.rows_max = 4}).ok());
  for (uint64_t nonce = 1; nonce <= 4; ++nonce) Commit(nonce, 1);
  Forwarder forwarder = Make();
  StepAll(forwarder);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("are missing in the outbox: it takes 20000 findings of a run"),
            std::string::npos)
      << said_[0];
}

}  // namespace
}  // namespace nanwatch
