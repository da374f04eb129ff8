// SPDX-License-Identifier: Apache-2.0
#include "tools/run_export.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
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

TEST(RunExport, ChecksRecordsOfTensorBoardAsTheyAreReadThere) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);  // RFC 3720
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  const std::string events = TensorBoardEvents(RunBuilder().Build().run(), OneStep());
  EXPECT_NE(events.find("brain.Event:2"), std::string::npos);
  EXPECT_NE(events.find("nanwatch/loss"), std::string::npos);
}

}  // namespace
}  // namespace nanwatch
