// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

namespace nanwatch {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TableRun RunOf(const std::string& id, const std::string& job, int rank) {
  TableRun run;
  run.id = id;
  run.job = job;
  run.run.set_rank(rank);
  run.run.set_world_size(2);
  run.run.set_program("train.py");
  run.live = true;
  run.step = 41;
  run.loss = 0.5;
  run.gradient_norm = INFINITY;
  run.scale = NAN;
  run.state.set_overhead_percent(1.5);
  run.state.set_records_dropped(2);
  run.state.add_unchecked(0);
  run.state.add_unchecked(7);
  run.state.set_steps_off(48);
  return run;
}

Incident IncidentAt(const std::string& layer, const std::string& severity = "critical") {
  Incident incident;
  incident.set_severity(severity);
  incident.mutable_origin()->set_layer(layer);
  incident.mutable_origin()->set_class_("produce");
  incident.mutable_origin()->set_phase("forward");
  return incident;
}

size_t Samples(const std::string& text) {
  std::istringstream lines(text);
  size_t count = 0;
  for (std::string line; std::getline(lines, line);) count += line.starts_with('#') ? 0 : 1;
  return count;
}

TEST(Metrics, AreTextThatBothOfPrometheusFormatsHave) {
  const std::vector<TableRun> runs = {RunOf("0001", "j", 1)};
  Warning warning;
  warning.set_id("gradient-exploding");
  const std::map<std::string, TableJob> jobs = {
      {"j",
       {.incidents = {IncidentAt("head"), IncidentAt("head"), IncidentAt("mask", "info")},
        .warnings = {warning}}}};
  const std::string open = MetricsText(runs, jobs, true, MetricsFormat::kOpenMetrics);
  EXPECT_THAT(open, HasSubstr("# TYPE nanwatch_steps counter\n"
                              "nanwatch_steps_total{job=\"j\",rank=\"1\",run=\"0001\"} 41\n"));
  EXPECT_THAT(open, HasSubstr("# TYPE nanwatch_run info\nnanwatch_run_info{job=\"j\","));
  EXPECT_THAT(open, HasSubstr("nanwatch_loss{job=\"j\",rank=\"1\",run=\"0001\"} 0.5\n"));
  EXPECT_THAT(open, HasSubstr("nanwatch_gradient_norm{job=\"j\",rank=\"1\",run=\"0001\"} +Inf\n"));
  EXPECT_THAT(open, HasSubstr("nanwatch_loss_scale{job=\"j\",rank=\"1\",run=\"0001\"} NaN\n"));
  EXPECT_THAT(open, HasSubstr("nanwatch_overhead_ratio{job=\"j\",rank=\"1\",run=\"0001\"} 0.015"));
  EXPECT_THAT(open,
              HasSubstr("nanwatch_lost_records_total{job=\"j\",rank=\"1\",run=\"0001\"} 2\n"));
  EXPECT_THAT(open, HasSubstr("nanwatch_unchecked_total{"));
  EXPECT_THAT(open, HasSubstr(",reason=\"measuring\"} 48\n"));
  EXPECT_THAT(open, HasSubstr("nanwatch_anomalies_total{job=\"j\",rank=\"0\",class=\"produce\","
                              "phase=\"forward\",layer=\"head\"} 2\n"));
  EXPECT_THAT(open, Not(HasSubstr("mask"))) << "it did no harm";
  EXPECT_THAT(open, HasSubstr("nanwatch_warnings_total{job=\"j\",rank=\"0\","
                              "kind=\"gradient-exploding\"} 1\n"));
  EXPECT_THAT(open, EndsWith("# EOF\n"));

  const std::string text = MetricsText(runs, jobs, false, MetricsFormat::kText);
  EXPECT_THAT(text, HasSubstr("# TYPE nanwatch_steps_total counter\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE nanwatch_run_info gauge\n"));
  EXPECT_THAT(text, HasSubstr("nanwatch_database_readable 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("# EOF")));
}

TEST(Metrics, OfTenThousandLayersAreFew) {
  std::vector<TableRun> runs;
  std::map<std::string, TableJob> jobs;
  for (int i = 0; i < kTableRunsMax; ++i) {
    runs.push_back(RunOf("run" + std::to_string(i), "job" + std::to_string(i), 0));
    for (int reason = 0; reason < 100; ++reason) runs.back().state.add_unchecked(1);
  }
  for (int i = 0; i < 10'000; ++i) {
    jobs["job0"].incidents.push_back(IncidentAt("layer" + std::to_string(i)));
    jobs["job0"].warnings.emplace_back().set_id("warning" + std::to_string(i));
  }
  const std::string text = MetricsText(runs, jobs, true, MetricsFormat::kText);
  EXPECT_LE(Samples(text), kMetricSeriesMax);
  size_t layers = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    layers += line.starts_with("nanwatch_anomalies_total{") ? 1 : 0;
  EXPECT_EQ(layers, kMetricAnomaliesMax);
  EXPECT_THAT(text, HasSubstr("layer=\"(other)\"} 9985\n"));
}

TEST(Metrics, EscapeWhatAJobCallsItself) {
  TableRun run = RunOf("1", "a\"b\\c\nd", 0);
  run.run.set_program(std::string(100'000, 'x'));
  const std::string text = MetricsText({run}, {}, true, MetricsFormat::kOpenMetrics);
  EXPECT_THAT(text, HasSubstr("job=\"a\\\"b\\\\c?d\""));
  EXPECT_LT(text.size(), 10'000u);
}

TEST(Metrics, AreInTheFormatThatIsAskedFor) {
  EXPECT_EQ(FormatFor("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"),
            MetricsFormat::kOpenMetrics);
  EXPECT_EQ(FormatFor("*/*"), MetricsFormat::kText);
}

// A site that found no room is no record: `report` and `ps` say the same number.
TEST(Metrics, CountAsLostWhatTheReportCounts) {
  TableRun run = RunOf("0001", "j", 1);
  run.state.set_sites_dropped(5'000);
  run.state.set_holes(1);
  const std::string text = MetricsText({run}, {}, true, MetricsFormat::kText);
  EXPECT_THAT(text,
              HasSubstr("nanwatch_lost_records_total{job=\"j\",rank=\"1\",run=\"0001\"} 3\n"));
}

}  // namespace
}  // namespace nanwatch
