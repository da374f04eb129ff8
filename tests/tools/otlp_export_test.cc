// SPDX-License-Identifier: Apache-2.0
#include "tools/otlp_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "daemon/fleet/otlp_logs.h"
#include "daemon/ingest/run_batch.h"
#include "tests/daemon/correlate/run_builder.h"
#include "tools/otlp_send.h"

namespace nanwatch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kStartNs = 1'795'730'671'000'000'000;

RunFacts OneRun() {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_run()->set_started_real_ns(kStartNs);
  facts.mutable_run()->set_started_monotonic_ns(1'000'000'000);
  return facts;
}

RunSeries Steps(const RunFacts& facts, size_t count) {
  RunSeries series{.run = RunId(facts.run()), .rank = 0, .points = {}};
  for (size_t i = 0; i < count; ++i) {
    StepPoint point;
    point.step = static_cast<int64_t>(i);
    point.time_ns = 1'000'000'000 + (i + 1) * 1'000'000;
    point.loss = i == 2 ? NAN : 0.5;
    point.seconds = 0.001;
    series.points.push_back(point);
  }
  return series;
}

OtlpExport Exported(const RunFacts& facts, size_t steps, const Verdict& verdict = {}) {
  return OtlpOf({facts}, verdict, {Steps(facts, steps)}, {.version = "1", .now_ns = kStartNs + 9});
}

TEST(OtlpExport, GivesAStepItsTimeOnTheClockOfTheHost) {
  const OtlpExport exported = Exported(OneRun(), 3);
  ASSERT_THAT(exported.metrics, SizeIs(2)) << "the steps, then the totals";
  const otlp::Metric& loss = exported.metrics[0].resource_metrics(0).scope_metrics(0).metrics(0);
  EXPECT_EQ(loss.name(), "nanwatch.loss");
  ASSERT_EQ(loss.gauge().data_points_size(), 3);
  EXPECT_EQ(loss.gauge().data_points(1).time_unix_nano(), kStartNs + 2'000'000);
  EXPECT_TRUE(std::isnan(loss.gauge().data_points(2).as_double()));
  EXPECT_EQ(loss.gauge().data_points(2).attributes(0).value().int_value(), 2);
}

TEST(OtlpExport, LeavesOutWhatIsNotKnown) {
  for (const otlp::MetricsRequest& request : Exported(OneRun(), 3).metrics) {
    for (const otlp::Metric& metric : request.resource_metrics(0).scope_metrics(0).metrics()) {
      EXPECT_NE(metric.name(), "nanwatch.gradient_norm");
      EXPECT_NE(metric.name(), "nanwatch.overhead");
      EXPECT_NE(metric.name(), "nanwatch.unchecked");
    }
  }
}

TEST(OtlpExport, CountsTheStepsThatWereOffToMeasure) {
  RunFacts facts = OneRun();
  facts.mutable_state()->set_steps_off(48);
  const OtlpExport exported = Exported(facts, 3);
  const auto& metrics = exported.metrics.back().resource_metrics(0).scope_metrics(0).metrics();
  const auto unchecked = std::ranges::find(metrics, "nanwatch.unchecked",
                                           [](const otlp::Metric& one) { return one.name(); });
  ASSERT_NE(unchecked, metrics.end());
  EXPECT_EQ(unchecked->sum().data_points(0).attributes(0).value().string_value(), "measuring");
  EXPECT_EQ(unchecked->sum().data_points(0).as_int(), 48);
}

TEST(OtlpExport, CutsAJobIntoLinesThatAReceiverOfFilesTakes) {
  const RunFacts facts = OneRun();
  Verdict verdict;
  for (int i = 0; i < 250; ++i) {
    Incident& incident = *verdict.add_incidents();
    incident.set_severity("critical");
    incident.mutable_origin()->set_run(RunId(facts.run()));
    incident.mutable_origin()->set_layer(std::string(10'000'000 / 250, 'x'));
  }
  const OtlpExport exported = Exported(facts, 4096, verdict);
  EXPECT_THAT(exported.logs, SizeIs(3));
  EXPECT_THAT(exported.metrics, SizeIs(10));
  std::istringstream lines(OtlpJsonLines(exported));
  size_t records = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LT(line.size(), size_t{1} << 20);
    const nlohmann::json request = nlohmann::json::parse(line);
    if (!request.contains("resourceLogs")) continue;
    for (const nlohmann::json& record : request["resourceLogs"][0]["scopeLogs"][0]["logRecords"]) {
      ++records;
      EXPECT_TRUE(record["severityNumber"].is_number());
      EXPECT_TRUE(record["observedTimeUnixNano"].is_string());
    }
  }
  EXPECT_EQ(records, 251u) << "and the run's begin";
}

TEST(OtlpExport, PutsNoTextIntoARecordThatIsNotPrintable) {
  const RunFacts facts = OneRun();
  Verdict verdict;
  Incident& incident = *verdict.add_incidents();
  incident.mutable_origin()->set_run(RunId(facts.run()));
  incident.mutable_origin()->set_layer("a\x1b[31m\xe2\x80\xae");
  const std::string lines = OtlpJsonLines(Exported(facts, 0, verdict));
  EXPECT_EQ(lines.find("\\u001b"), std::string::npos);
  EXPECT_EQ(lines.find("\xe2\x80\xae"), std::string::npos);
}

// ---- sending

struct Receiver {
  std::vector<std::string> paths;
  std::vector<HttpReply> replies;  // the last one again and again

  OtlpPost Post() {
    return [this](const std::string& path, const std::string&) -> Result<HttpReply> {
      const size_t at = std::min(paths.size(), replies.size() - 1);
      paths.push_back(path);
      return replies[at];
    };
  }
};

std::string WhatFails(const std::vector<HttpReply>& replies) {
  Receiver receiver{.paths = {}, .replies = replies};
  return SendOtlp(Exported(OneRun(), 3), "http://there:4318", receiver.Post()).message();
}

TEST(OtlpSend, SendsLogsAndThenMetrics) {
  Receiver receiver{.paths = {}, .replies = {{.status = 200}}};
  EXPECT_TRUE(SendOtlp(Exported(OneRun(), 3), "http://there:4318", receiver.Post()).ok());
  EXPECT_EQ(receiver.paths, (std::vector<std::string>{"/v1/logs", "/v1/metrics", "/v1/metrics"}));
}

TEST(OtlpSend, TakesJsonForAnAnswer) {
  EXPECT_THAT(
      WhatFails({{.status = 200, .headers = {{"content-type", "application/json"}}, .body = "{}"}}),
      IsEmpty());
}

TEST(OtlpSend, SaysWhatToDo) {
  EXPECT_THAT(WhatFails({{.status = 401}}),
              AllOf(HasSubstr("nothing was exported"), HasSubstr("http://there:4318/v1/logs"),
                    HasSubstr("--token-file")));
  EXPECT_THAT(WhatFails({{.status = 404}}), HasSubstr("without /v1/logs"));
  EXPECT_THAT(WhatFails({{.status = 503,
                          .headers = {{"content-type", "text/plain"}},
                          .body = "the queue\x1b is full\nand more"}}),
              HasSubstr("503 (the queue? is full): it takes nothing now, try again later"));
  EXPECT_THAT(WhatFails({{.status = 200}, {.status = 503}}),
              HasSubstr("1 of 3 requests were exported, the next was not"));
}

TEST(OtlpSend, KnowsWhatIsNoReceiver) {
  EXPECT_THAT(
      WhatFails({{.status = 200, .headers = {{"content-type", "text/html"}}, .body = "<html>"}}),
      HasSubstr("is no OTLP/HTTP receiver"));
}

TEST(OtlpSend, DoesNotPassOverWhatWasRejected) {
  EXPECT_THAT(WhatFails({{.status = 200,
                          .headers = {{"content-type", kOtlpType}},
                          .body = EncodeLogsAnswer(2, "too old")}}),
              HasSubstr("rejected 2 of them: too old"));
}

}  // namespace
}  // namespace nanwatch
