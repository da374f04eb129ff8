// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/json_report.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "daemon/explain/explain.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using nlohmann::json;

json Document(const Verdict& verdict) { return json::parse(JsonReport(verdict)); }

Verdict SomeAnomaly() {
  RunBuilder run;
  run.Value(1).Produce("aten::lgamma").At("a", "B").Step(5).Nan();
  run.Pass(2).Root(1);
  return Diagnose({run.Build()});
}

TEST(JsonReport, DocumentHasTheFieldsThatArePromised) {
  const json document = Document(SomeAnomaly());
  EXPECT_EQ(document["schema"], "nanwatch.verdict/1");
  EXPECT_EQ(document["verdict"], "anomaly");
  for (const char* key :
       {"id", "job", "attempt", "command", "host", "pid", "rank", "world_size", "torch", "device",
        "level", "started_at", "ended_at", "exit_code", "signal"}) {
    EXPECT_TRUE(document["run"].contains(key)) << key;
    EXPECT_TRUE(document["runs"][0].contains(key)) << key;
  }
  for (const char* key :
       {"steps", "ops_seen", "tensors_checked", "bytes_checked", "unchecked", "lost_events",
        "step_summaries_lost", "overhead_percent", "overhead_interval"}) {
    EXPECT_TRUE(document["coverage"].contains(key)) << key;
  }
  const json& incident = document["incidents"][0];
  for (const char* key :
       {"severity", "origin", "chain", "reach", "pattern", "count", "first_step", "last_step"}) {
    EXPECT_TRUE(incident.contains(key)) << key;
  }
  for (const char* key : {"kind",          "class",     "inputs_seen", "exact",   "op",    "phase",
                          "autograd_node", "layer",     "layer_type",  "root",    "param", "step",
                          "step_source",   "iteration", "micro_step",  "updates", "rank",  "device",
                          "source",        "outputs",   "inputs"}) {
    EXPECT_TRUE(incident["origin"].contains(key)) << key;
  }
  for (const char* key : {"index", "dtype", "shape", "numel", "nan", "pos_inf", "neg_inf",
                          "finite_min", "finite_max", "finite_mean", "first_bad_index"}) {
    EXPECT_TRUE(incident["origin"]["outputs"][0].contains(key)) << key;
  }
}

TEST(JsonReport, WhatIsNotKnownIsNull) {
  const json document = Document(SomeAnomaly());
  EXPECT_TRUE(document["run"]["exit_code"].is_null());
  EXPECT_TRUE(document["run"]["signal"].is_null());
  EXPECT_TRUE(document["run"]["ended_at"].is_null());
  EXPECT_TRUE(document["coverage"]["overhead_percent"].is_null());
  EXPECT_TRUE(document["coverage"]["overhead_interval"].is_null());
  EXPECT_TRUE(document["incidents"][0]["pattern"].is_null());
}

TEST(JsonReport, MeasuredOverheadHasItsInterval) {
  Verdict verdict = SomeAnomaly();
  verdict.mutable_coverage()->set_overhead_percent(1.25);
  verdict.mutable_coverage()->add_overhead_interval(-0.5);
  verdict.mutable_coverage()->add_overhead_interval(2);
  const json document = Document(verdict);
  EXPECT_EQ(document["coverage"]["overhead_percent"], 1.25);
  EXPECT_EQ(document["coverage"]["overhead_interval"], json({-0.5, 2}));
}

TEST(JsonReport, DefaultsArePrinted) {
  const json document = Document(SomeAnomaly());
  EXPECT_EQ(document["run"]["rank"], 0);
  EXPECT_EQ(document["incidents"][0]["origin"]["param"], "");
  EXPECT_EQ(document["incidents"][0]["origin"]["inputs"], json::array());
  EXPECT_EQ(document["coverage"]["unchecked"], json::object());
}

TEST(JsonReport, StatusZeroIsNotNull) {
  Verdict verdict = SomeAnomaly();
  verdict.mutable_run()->set_exit_code(0);
  EXPECT_EQ(Document(verdict)["run"]["exit_code"], 0);
}

TEST(JsonReport, NonFiniteNumbersAreText) {
  Verdict verdict = SomeAnomaly();
  TensorStats& output = *verdict.mutable_incidents(0)->mutable_origin()->mutable_outputs(0);
  output.set_finite_min(-std::numeric_limits<double>::infinity());
  output.set_finite_max(std::numeric_limits<double>::infinity());
  output.set_finite_mean(std::numeric_limits<double>::quiet_NaN());
  const json stats = Document(verdict)["incidents"][0]["origin"]["outputs"][0];
  EXPECT_EQ(stats["finite_min"], "-Infinity");
  EXPECT_EQ(stats["finite_max"], "Infinity");
  EXPECT_EQ(stats["finite_mean"], "NaN");
}

TEST(JsonReport, WholeNumbersAreNumbers) {
  const json document = Document(SomeAnomaly());
  EXPECT_TRUE(document["incidents"][0]["origin"]["step"].is_number_integer());
  EXPECT_EQ(document["incidents"][0]["origin"]["step"], 5);
}

TEST(JsonReport, NothingObservedIsADocumentToo) {
  const json document = Document(Diagnose({}));
  EXPECT_EQ(document["verdict"], "unknown");
  EXPECT_EQ(document["runs"], json::array());
  EXPECT_TRUE(document["run"].is_null());
}

TEST(JsonReport, NamesThatAreNoUtf8AreRepaired) {
  Verdict verdict = SomeAnomaly();
  verdict.mutable_incidents(0)->mutable_origin()->set_layer("a\xff\xfe");
  EXPECT_TRUE(json::accept(JsonReport(verdict)));
}

TEST(JsonReport, SameVerdictIsTheSameText) {
  RunFacts facts = RunBuilder().Build();
  for (int reason = 0; reason < 16; ++reason) facts.mutable_state()->add_unchecked(1);
  EXPECT_EQ(JsonReport(Diagnose({facts})), JsonReport(Diagnose({facts})));
}

}  // namespace
}  // namespace nanwatch
