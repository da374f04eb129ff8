// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/gather_answers.h"

#include <gtest/gtest.h>

#include "daemon/fleet/held_row.h"
#include "daemon/fleet/otlp_logs.h"
#include "tests/daemon/fleet/rows.h"
#include "tests/daemon/gather/scripted_writer.h"

namespace nanwatch {
namespace {

class GatherAnswersTest : public testing::Test {
 protected:
  HttpAnswer Post(const std::string& body, const std::string& type = "application/x-protobuf") {
    return answers_.Answer(
        {.path = "/v1/logs", .accept = "", .is_post = true, .type = type, .body = body});
  }
  HttpAnswer Get(const std::string& path) { return answers_.Answer({.path = path, .accept = ""}); }
  void Fail(const Status& status) {
    const std::lock_guard<std::mutex> lock(database_.mutex);
    database_.answer = status;
  }

  ScriptedDatabase database_;
  RowQueue queue_{1, WritersOf(database_), {}};
  std::vector<std::string> said_;
  SystemClock clock_;
  FleetAnswers fleet_{{}, clock_};
  GatherAnswers answers_{queue_, fleet_,
                         [this](const std::string& line) { said_.push_back(line); }};
  const std::vector<FleetRow> rows_ = {StepRow(1), StepRow(2)};
};

TEST_F(GatherAnswersTest, RowsAreTaken) {
  const HttpAnswer answer = Post(EncodeLogs(rows_, "h"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.type, "application/x-protobuf");
  EXPECT_EQ(answer.body, "");
  EXPECT_EQ(database_.sequences, (std::set<uint64_t>{1, 2}));
  EXPECT_EQ(Post(EncodeLogs(rows_, "h")).status, 200);
  const std::string metrics = Get("/metrics").body;
  EXPECT_NE(metrics.find("\nnanwatch_gather_rows_written_total 2\n"), std::string::npos);
  EXPECT_NE(metrics.find("\nnanwatch_gather_rows_duplicate_total 2\n"), std::string::npos);
  EXPECT_TRUE(said_.empty());
}

TEST_F(GatherAnswersTest, RecordsThatAreNoRowsAreRejectedForGoodAndLoggedOnce) {
  std::vector<FleetRow> rows = rows_;
  rows[0].run = "";
  for (int i = 0; i < 2; ++i) {
    const HttpAnswer answer = Post(EncodeLogs(rows, "h"));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(DecodeLogsAnswer(answer.body)->rejected, 1u);
  }
  EXPECT_EQ(said_.size(), 1u);
  EXPECT_EQ(database_.sequences, (std::set<uint64_t>{2}));
}

TEST_F(GatherAnswersTest, WhatIsRefusedIsCountedAndLoggedOnceInEachWay) {
  for (const int status : {401, 401, 413, 401, 429, 404, 503, 413}) answers_.OnFailure(status);
  ASSERT_EQ(said_.size(), 2u);
  EXPECT_NE(said_[0].find("without the right token"), std::string::npos);
  EXPECT_NE(said_[1].find("too long"), std::string::npos);
  EXPECT_NE(Get("/metrics").body.find("\nnanwatch_gather_requests_refused_total 5\n"),
            std::string::npos);
}

TEST_F(GatherAnswersTest, ADatabaseThatIsAwayIsToBeTriedLaterAndLoggedOnce) {
  Fail(Status(ErrorKind::kIo, "away"));
  for (int i = 0; i < 3; ++i) {
    const HttpAnswer answer = Post(EncodeLogs(rows_, "h"));
    EXPECT_EQ(answer.status, 503);
    EXPECT_GT(answer.retry_after_s, 0);
  }
  EXPECT_EQ(Get("/healthz").status, 503);
  Fail(Status());
  EXPECT_EQ(Post(EncodeLogs(rows_, "h")).status, 200);
  EXPECT_EQ(Get("/healthz").status, 200);
  ASSERT_EQ(said_.size(), 2u);
  EXPECT_NE(said_[0].find("away"), std::string::npos);
}

TEST_F(GatherAnswersTest, WhatTheDatabaseRefusesWhateverItIsStaysWithItsSender) {
  Fail(Status(ErrorKind::kPermission, "permission denied"));
  EXPECT_EQ(Post(EncodeLogs(rows_, "h")).status, 503);
}

TEST_F(GatherAnswersTest, ARowThatTheDatabaseRefusesIsRejectedForGood) {
  database_.refused_sequence = 1;
  const HttpAnswer answer = Post(EncodeLogs(rows_, "h"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(DecodeLogsAnswer(answer.body)->rejected, 1u);
  EXPECT_EQ(DecodeLogsAnswer(answer.body)->reason, "a row is refused");
  EXPECT_EQ(database_.sequences, (std::set<uint64_t>{2}));
}

TEST_F(GatherAnswersTest, ARowThatASenderHeldAndThatIsMissingIsSaid) {
  const auto ask = [this](const std::string& held) {
    return answers_.Answer({.path = "/v1/logs",
                            .accept = "",
                            .is_post = true,
                            .type = "application/x-protobuf",
                            .body = EncodeLogs({}, "h"),
                            .headers = {{kHeldRowHeader, held}}});
  };
  const std::vector<std::pair<std::string, std::string>> said = {{kHeldRowHeader, kRowIsMissing}};
  for (int i = 0; i < 2; ++i) {
    const HttpAnswer answer = ask(ToText(NameOf(StepRow(1))));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.headers, said);
  }
  EXPECT_EQ(said_.size(), 1u);
  EXPECT_NE(Get("/metrics").body.find("\nnanwatch_gather_rows_missing_total 2\n"),
            std::string::npos);
  EXPECT_EQ(Post(EncodeLogs(rows_, "h")).status, 200);
  EXPECT_TRUE(ask(ToText(NameOf(StepRow(1)))).headers.empty());
  EXPECT_TRUE(ask("nonsense").headers.empty());
}

TEST_F(GatherAnswersTest, WhatIsNoLogIsRefused) {
  EXPECT_EQ(Post("no protobuf").status, 400);
  EXPECT_EQ(Post("{}", "application/json").status, 415);
  EXPECT_EQ(Post(EncodeLogs(rows_, "h"), "application/x-protobuf; charset=x").status, 200);
  EXPECT_EQ(Get("/v1/logs").status, 405);
  EXPECT_EQ(Get("/").status, 404);
  EXPECT_EQ(answers_.Answer({.path = "/v1/traces", .accept = "", .is_post = true}).status, 404);
}

}  // namespace
}  // namespace nanwatch
