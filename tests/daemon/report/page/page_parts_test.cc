// SPDX-License-Identifier: Apache-2.0
// The heat map, the strip of ranks, the series of a run, and how they become HTML.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "daemon/report/page/heat_map.h"
#include "daemon/report/page/html_page.h"
#include "daemon/report/page/page_document.h"
#include "daemon/report/page/rank_strip.h"
#include "daemon/report/page/run_series.h"
#include "proto/wire/record.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

LayerReport Layer(const std::string& name, double headroom) {
  LayerReport layer;
  layer.set_layer(name);
  layer.set_headroom(headroom);
  return layer;
}

void AddSnapshot(StatsReport& report, int64_t step, const std::vector<LayerReport>& layers) {
  SnapshotReport& snapshot = *report.add_snapshots();
  snapshot.set_run("r");
  snapshot.set_step(step);
  for (const LayerReport& layer : layers) *snapshot.add_layers() = layer;
}

StepPoint Point(int64_t step, const std::string& level = "full") {
  StepPoint point;
  point.step = point.x = step;
  point.level = level;
  return point;
}

TEST(HeatMap, HasARowALayerAndTheLeastHeadroomOfItsColumn) {
  StatsReport report;
  AddSnapshot(report, 0, {Layer("a", 64), Layer("b", 4)});
  AddSnapshot(report, 100, {Layer("a", 2), Layer("b", 8)});
  const HeatMap map = HeatMapOf(report, {.run = "r", .rank = 0, .points = {}}, 10, 10);
  EXPECT_THAT(map.steps, ElementsAre(0, 99));
  ASSERT_EQ(map.rows.size(), 2u);
  EXPECT_EQ(map.rows[0].cells, std::string({'0' + 13, '0' + 3}));
  EXPECT_EQ(map.rows[0].least, 2);
  EXPECT_EQ(map.rows[0].least_step, 100);
  EXPECT_EQ(map.rows[1].newest, 8);
}

TEST(HeatMap, TakesTheNearestLayerOfAStepWhereThereIsNoSnapshot) {
  RunSeries series{.run = "r", .rank = 0, .points = {Point(0), Point(1)}};
  series.points[1].limit_share = 2;  // beyond the limit
  series.points[1].nearest_layer = "head";
  const HeatMap map = HeatMapOf({}, series, 10, 10);
  ASSERT_EQ(map.rows.size(), 1u);
  EXPECT_EQ(map.rows[0].layer, "head");
  EXPECT_EQ(map.rows[0].cells, "0");
}

TEST(HeatMap, CallsNothingAnOverflowThatStillFits) {
  StatsReport report;
  AddSnapshot(report, 0, {Layer("a", 1), Layer("b", 1.01), Layer("c", 1.4), Layer("d", 1.5)});
  const HeatMap map = HeatMapOf(report, {.run = "r", .rank = 0, .points = {}}, 10, 10);
  std::string cells;
  for (const HeatRow& row : map.rows) cells += row.cells;
  EXPECT_EQ(cells, "0112");
}

TEST(HeatMap, KeepsTheLayersWithTheLeastHeadroomAndSaysHowManyAreLeftOut) {
  StatsReport report;
  std::vector<LayerReport> layers;
  for (int i = 0; i < 300; ++i) layers.push_back(Layer("layer" + std::to_string(i), 1000 - i));
  AddSnapshot(report, 5, layers);
  const HeatMap map = HeatMapOf(report, {.run = "r", .rank = 0, .points = {}}, 10, 200);
  EXPECT_EQ(map.rows.size(), 200u);
  EXPECT_EQ(map.rows_left_out, 100u);
  EXPECT_EQ(map.rows.front().layer, "layer100");
}

TEST(RankStrip, ShowsTheWorstStepOfEachColumn) {
  RunSeries first{
      .run = "a", .rank = 1, .points = {Point(0), Point(1, "idle"), Point(2), Point(3)}};
  first.points[2].bad = true;
  first.points[3].non_finite = true;
  RunSeries second{.run = "b", .rank = 0, .points = {Point(2), Point(3)}};
  second.points[1].skipped = true;
  const RankStrip strip = RankStripOf({first, second}, 10, 10);
  ASSERT_EQ(strip.rows.size(), 2u);
  EXPECT_EQ(strip.rows[0].cells, "..ws");
  EXPECT_EQ(strip.rows[1].cells, "wibh");
  EXPECT_EQ(strip.rows[1].first_bad, 2);
  EXPECT_EQ(RankStripOf({first, second}, 2, 10).rows[1].cells, "ib");
  EXPECT_EQ(RankStripOf({first, second}, 10, 1).rows_left_out, 1u);
}

StepSummary Summary(uint64_t index, uint32_t steps, uint64_t bad) {
  StepSummary step;
  step.set_index(index);
  step.mutable_clocks()->add_optimizer_steps(steps);
  step.mutable_clocks()->set_optimizer_ranges(steps);
  step.mutable_clocks()->set_optimizer_count(1);
  step.set_loss(static_cast<double>(index));
  step.set_values_bad(bad);
  step.set_level(static_cast<uint32_t>(wire::Level::kFull));
  return step;
}

TEST(RunSeries, CountsAStepAsItsOpsSawItAndSaysWhereValuesWentBad) {
  RunFacts facts = RunBuilder().Build();
  std::vector<StepSummary> steps = {Summary(0, 1, 0), Summary(1, 2, 0), Summary(2, 3, 4),
                                    Summary(3, 4, 4)};
  for (const StepSummary& step : steps) *facts.add_steps_read() = step;
  const RunSeries series = SeriesOf(facts, steps);
  ASSERT_EQ(series.points.size(), 4u);
  EXPECT_EQ(series.points[0].x, 0);
  EXPECT_EQ(series.points[3].x, 3);
  EXPECT_EQ(series.points[2].loss, 2);
  EXPECT_FALSE(series.points[2].gradient_norm.has_value());
  EXPECT_FALSE(series.points[1].non_finite);
  EXPECT_TRUE(series.points[2].non_finite);
  EXPECT_FALSE(series.points[3].non_finite) << "the count is of the whole run";
  EXPECT_FALSE(series.points[2].bad) << "a mask";
  steps[3].set_gradients_bad(1);
  EXPECT_TRUE(SeriesOf(facts, steps).points[3].bad);
  EXPECT_EQ(series.points[0].level, "full");
}

TEST(HtmlPage, KeepsDataFromEndingItsElement) {
  const nlohmann::ordered_json data = {{"name", "</script><!--<script>&\u2028\u2029\xff"}};
  const std::string html = HtmlData(data);
  EXPECT_THAT(html, Not(HasSubstr("<")));
  EXPECT_THAT(html, Not(HasSubstr("&")));
  EXPECT_THAT(html, Not(HasSubstr("\u2028")));
  EXPECT_EQ(nlohmann::json::parse(html)["name"], "</script><!--<script>&\u2028\u2029\ufffd");
}

TEST(HtmlPage, NeverRepeatsItsNonce) {
  EXPECT_EQ(NewNonce().size(), 32u);
  EXPECT_NE(NewNonce(), NewNonce());
}

TEST(HtmlPage, ShowsTheReportAsTextWhereScriptsDoNotRun) {
  const std::string page = HtmlPage({{"program", "<b>"}}, {.nonce = "n", .plain_text = "a < b"});
  EXPECT_THAT(page, HasSubstr("<noscript><pre class=\"plain\">a &lt; b</pre></noscript>"));
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;</title>"));
  EXPECT_THAT(page, HasSubstr("connect-src 'none'"));
}

TEST(PageDocument, SaysHowManySummariesOfStepsWereLost) {
  PageFacts facts;
  const auto rows = [&facts] { return PageDocument(facts)["coverage"]["rows"].dump(); };
  EXPECT_EQ(rows().find("Step summaries lost"), std::string::npos);
  facts.verdict.mutable_coverage()->set_step_summaries_lost(1'234);
  EXPECT_NE(rows().find("\"Step summaries lost\",\"value\":\"1,234 (steps came faster than they "
                        "were read: loss and gradient norm have gaps, findings have none)\""),
            std::string::npos)
      << rows();
}

TEST(PageDocument, SaysThatStepsByLevelAreThoseOfAllProcesses) {
  PageFacts facts;
  facts.verdict.mutable_coverage()->set_steps(6);
  (*facts.verdict.mutable_coverage()->mutable_steps_watched())["full"] = 12;
  facts.verdict.add_runs();
  EXPECT_THAT(PageDocument(facts)["coverage"].dump(), HasSubstr("\"Steps at level full\""));
  facts.verdict.add_runs();
  EXPECT_THAT(PageDocument(facts)["coverage"].dump(),
              HasSubstr("\"Steps at level full, in all processes\""));
}

TEST(PageDocument, OfAJobInWhichNothingWasObservedHasAVerdictAndNoPictures) {
  PageFacts facts;
  facts.verdict.set_verdict("unknown");
  facts.verdict.set_unknown_because("no_run");
  const nlohmann::ordered_json page = PageDocument(facts);
  EXPECT_EQ(page["verdict"]["word"], "UNKNOWN");
  EXPECT_TRUE(page["series"].empty());
  EXPECT_TRUE(page["heat"].is_null());
  EXPECT_TRUE(page["strip"].is_null());
  EXPECT_TRUE(page["origin"].is_null());
}

}  // namespace
}  // namespace nanwatch
