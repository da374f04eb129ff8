// SPDX-License-Identifier: Apache-2.0
#include "tools/run_export.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

namespace nanwatch {
namespace {

RunSeries OneStep() {
  StepPoint point;
  point.step = 3;
  point.x = 4;
  point.time_ns = 1'000'000'000'000'000'001;
  point.loss = NAN;
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
  EXPECT_EQ(csv.substr(line),
            "00ff,2,3,4,1000000000000000001,NaN,,,0.25,,\"a,\"\"b\"\"?=c\",full,0,1,0\r\n");
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
    EXPECT_EQ(object["monotonic_ns"], "1000000000000000001");
  }
  EXPECT_EQ(types, (std::vector<std::string>{"run", "step", "incident", "warning"}));
}

}  // namespace
}  // namespace nanwatch
