// SPDX-License-Identifier: Apache-2.0
#include "tools/run_export.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/daemon/correlate/run_builder.h"
#include "tools/tensorboard_export.h"
#include "tools/trace_export.h"

namespace nanwatch {
namespace {

RunSeries OneStep() {
  StepPoint point;
  point.step = 3;
  point.x = 4;
  point.time_ns = 1'000'000'000'000'000'001;
  point.loss = NAN;
  point.learning_rate = 0.001;
  point.overhead = 0.02;
  point.seconds = 0.25;
  point.nearest_layer = "a,\"b\"\n=c";
  point.level = "full";
  point.bad = true;
  return {.run = "00ff", .rank = 2, .points = {point}};
}

TEST(RunExport, WritesCsvThatQuotesWhatHasToBeQuoted) {
  const std::string csv = StepsCsv({OneStep()});
  const size_t line = csv.find("\r\n") + 2;
  EXPECT_EQ(csv.substr(0, 14), "run,rank,step,");
  EXPECT_EQ(
      csv.substr(line),
      "00ff,2,3,4,1000000000000000001,NaN,,,0.001,0.02,0.25,,\"a,\"\"b\"\"?=c\",full,0,1,0\r\n");
}

TEST(RunExport, WritesAnObjectALine) {
  Verdict verdict;
  verdict.add_runs()->set_id("00ff");
  verdict.add_incidents()->set_severity("error");
  verdict.add_warnings()->set_id("scaler-sinking");
  std::istringstream lines(JobJsonLines("j", {}, verdict, {OneStep()}));
  std::vector<std::string> types;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json object = nlohmann::json::parse(line);
    types.push_back(object["type"]);
    if (object["type"] != "step") continue;
    EXPECT_EQ(object["loss"], "NaN");
    EXPECT_TRUE(object["gradient_norm"].is_null());
    EXPECT_EQ(object["learning_rate"], 0.001);
    EXPECT_EQ(object["overhead"], 0.02);
    EXPECT_EQ(object["monotonic_ns"], "1000000000000000001");
  }
  EXPECT_EQ(types, (std::vector<std::string>{"run", "step", "incident", "warning"}));
}

// libkineto gives times since a multiple of 7,889,238 s; two traces with the same base lie side by
// side.
TEST(RunExport, WritesATraceOnTheClockOfTorchsProfiler) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_run()->set_started_real_ns(1'795'730'671'330'997'800);
  facts.mutable_run()->set_started_monotonic_ns(1'000'000'000);
  facts.mutable_run()->set_pid(7);
  RunSeries series = OneStep();
  series.points[0].time_ns = 3'000'000'000;  // two seconds after the start
  series.points[0].gradient_norm = 1.5;
  const nlohmann::json trace = nlohmann::json::parse(TraceJson({facts}, Verdict(), {series}));
  EXPECT_EQ(trace["baseTimeNanoseconds"], 1'790'857'026'000'000'000);
  int steps = 0, counters = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    EXPECT_EQ(event["pid"], 7);
    if (event["ph"] == "C") {
      ++counters;
      EXPECT_NE(event["name"], "loss") << "a NaN is no value of a counter";
    }
    if (event["ph"] != "X") continue;
    ++steps;
    EXPECT_EQ(event["name"], "step 3");
    EXPECT_EQ(event["args"]["loss"], "NaN");
    EXPECT_EQ(event["dur"], 250'000);
    EXPECT_NEAR(event["ts"].get<double>(), (4'873'645.3309978 + 1.75) * 1e6, 1);
  }
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(counters, 2) << "gradient norm and learning rate";
}

// Perfetto drops a slice that begins before the one before it on its track has ended.
TEST(RunExport, StepsInATraceDoNotOverlap) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_run()->set_started_real_ns(1'795'730'671'330'997'800);
  RunSeries series = OneStep();
  series.points.resize(3, series.points[0]);
  const uint64_t ends_ns[] = {1'000'000'000, 1'300'000'001, 1'299'999'999};
  const double seconds[] = {0.25, 0.3000000019, 0.1};
  for (size_t i = 0; i < 3; ++i) {
    series.points[i].time_ns = ends_ns[i];
    series.points[i].seconds = seconds[i];
  }
  const nlohmann::json trace = nlohmann::json::parse(TraceJson({facts}, Verdict(), {series}));
  int64_t ended_ns = 0;
  int steps = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const auto begins_ns = std::llround(event["ts"].get<double>() * 1000);
    EXPECT_GE(begins_ns, ended_ns) << "step " << steps;
    ended_ns = begins_ns + std::llround(event["dur"].get<double>() * 1000);
    ++steps;
  }
  EXPECT_EQ(steps, 3);
}

TEST(RunExport, ProcessesWithOneNumberHaveTracksOfTheirOwn) {
  std::vector<RunFacts> facts(2, RunBuilder().Build());
  facts[1].mutable_run()->set_rank(1);
  const nlohmann::json trace =
      nlohmann::json::parse(TraceJson(facts, Verdict(), {OneStep(), OneStep()}));
  std::set<nlohmann::json> tracks;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") tracks.insert(event["tid"]);
  }
  EXPECT_EQ(tracks.size(), 2u);
}

TEST(RunExport, ChecksRecordsOfTensorBoardAsTheyAreReadThere) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);  // RFC 3720
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  const std::string events = TensorBoardEvents(RunBuilder().Build().run(), OneStep());
  EXPECT_NE(events.find("brain.Event:2"), std::string::npos);
  EXPECT_NE(events.find("nanwatch/loss"), std::string::npos);
}

}  // namespace
}  // namespace nanwatch
