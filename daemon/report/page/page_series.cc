// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/page/page_series.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "daemon/report/incident_words.h"
#include "daemon/report/page/heat_map.h"
#include "daemon/report/page/rank_strip.h"
#include "daemon/report/page/thinning.h"
#include "daemon/report/text_layout.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

struct SeriesKind {
  const char* id;
  const char* title;
  const char* unit;
  std::optional<double> StepPoint::*value;
};
constexpr SeriesKind kKinds[] = {
    {"loss", "Loss", "", &StepPoint::loss},
    {"gradient_norm", "Gradient norm", "2-norm over all gradients", &StepPoint::gradient_norm},
    {"scale", "Loss scale", "of the GradScaler", &StepPoint::scale},
    {"learning_rate", "Learning rate", "of the optimizer's first group", &StepPoint::learning_rate},
    {"seconds", "Time of a step", "seconds", &StepPoint::seconds},
    {"overhead", "Overhead of nanwatch", "how much longer its checks make a step, 0.01 is 1 %",
     &StepPoint::overhead},
    {"limit_share", "Nearest to overflow",
     "largest result of a layer, as a share of its type's largest number", &StepPoint::limit_share},
};

// Six digits are more than a picture shows, and a third of the text.
Json Rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return std::strtod(text, nullptr);
}

// The processes that train together with the one of the headline; that one alone where it is alone,
// and the one with the most steps where it has none.
std::vector<const RunSeries*> ShownTogether(const PageFacts& facts) {
  const std::string& headline = facts.verdict.run().id();
  std::vector<const RunSeries*> shown;
  if (facts.verdict.run().world_size() > 1) {
    for (const RunSeries& run : facts.series) {
      if (!run.points.empty()) shown.push_back(&run);
    }
    return shown;
  }
  const RunSeries* most = nullptr;
  for (const RunSeries& run : facts.series) {
    if (run.points.empty()) continue;
    if (run.run == headline) return {&run};
    if (most == nullptr || run.points.size() > most->points.size()) most = &run;
  }
  if (most != nullptr) shown.push_back(most);
  return shown;
}

// Lists of one number a column; those of low and high only where they say more than the mean.
Json ColumnsJson(const std::vector<SeriesColumn>& columns) {
  Json x = Json::array(), mean = Json::array(), low = Json::array(), high = Json::array();
  Json bad = Json::array();
  bool is_band = false;
  for (const SeriesColumn& column : columns) {
    if (column.non_finite > 0) bad.push_back(column.x);
    x.push_back(column.x);
    const bool known = column.finite > 0;
    is_band = is_band || column.finite > 1;
    mean.push_back(known ? Rounded(column.mean) : Json());
    low.push_back(known ? Rounded(column.low) : Json());
    high.push_back(known ? Rounded(column.high) : Json());
  }
  Json json = {{"x", std::move(x)}, {"mean", std::move(mean)}};
  if (is_band) json["low"] = std::move(low);
  if (is_band) json["high"] = std::move(high);
  json["bad"] = std::move(bad);
  return json;
}

Json Mark(const char* kind, int64_t x, int64_t step, std::string text) {
  return {{"kind", kind}, {"x", x}, {"step", step}, {"text", std::move(text)}};
}

}  // namespace

std::string PageText(std::string_view text) { return Shorten(Printable(text), kPageTextMax); }

Json SeriesJson(const PageFacts& facts) {
  Json all = Json::array();
  const std::vector<const RunSeries*> shown = ShownTogether(facts);
  for (const SeriesKind& kind : kKinds) {
    std::vector<SeriesValue> values;
    for (const RunSeries* run : shown) {
      for (const StepPoint& point : run->points) {
        const std::optional<double>& value = point.*kind.value;
        if (value.has_value()) values.push_back({point.x, *value});
      }
    }
    if (values.empty()) continue;
    const size_t count = values.size();
    const std::vector<SeriesColumn> columns = Thin(std::move(values), kPageColumnsMax);
    Json json = {{"id", kind.id},
                 {"title", kind.title},
                 {"unit", kind.unit},
                 {"values", count},
                 {"processes", shown.size()}};
    json.update(ColumnsJson(columns));
    all.push_back(std::move(json));
  }
  return all;
}

Json MarksJson(const Verdict& verdict) {
  Json marks = Json::array();
  for (const Incident& incident : verdict.incidents()) {
    const int64_t x = incident.origin().iteration() >= 0 ? incident.origin().iteration()
                                                         : incident.origin().step();
    if (incident.severity() == "info" || x < 0 || marks.size() >= kPageMarksMax / 2) continue;
    marks.push_back(Mark("incident", x, incident.origin().step(),
                         PageText(IncidentSummary(incident, kPageTextMax))));
  }
  for (const Warning& warning : verdict.warnings()) {
    const int64_t x = warning.iteration() >= 0 ? warning.iteration() : warning.step();
    if (x < 0 || marks.size() >= kPageMarksMax) continue;
    marks.push_back(
        Mark("warning", x, warning.step(), PageText(warning.evidence() + "; " + warning.cause())));
  }
  return marks;
}

Json HeatJson(const PageFacts& facts) {
  const std::vector<const RunSeries*> shown = ShownTogether(facts);
  RunSeries series;
  series.run = facts.verdict.run().id();
  for (const RunSeries* run : shown) {
    if (run->run == series.run || shown.size() == 1) series = *run;
  }
  const HeatMap map = HeatMapOf(facts.stats, series, kPageHeatColumnsMax, kPageHeatRowsMax);
  if (map.rows.empty()) return nullptr;
  Json rows = Json::array();
  for (const HeatRow& row : map.rows) {
    rows.push_back({{"layer", PageText(row.layer)},
                    {"least", Rounded(row.least)},
                    {"least_step", row.least_step},
                    {"newest", Rounded(row.newest)},
                    {"cells", row.cells}});
  }
  return {{"steps", map.steps},
          {"steps_per_column", map.steps_per_column},
          {"rows", std::move(rows)},
          {"rows_left_out", map.rows_left_out}};
}

Json StripJson(const PageFacts& facts) {
  const RankStrip strip = RankStripOf(facts.series, kPageStripColumnsMax, kPageRanksMax);
  if (strip.rows.empty()) return nullptr;
  Json rows = Json::array();
  for (const StripRow& row : strip.rows) {
    rows.push_back({{"run", PageText(row.run.substr(0, 8))},
                    {"rank", row.rank},
                    {"steps", row.steps},
                    {"first_bad", row.first_bad},
                    {"cells", row.cells}});
  }
  return {{"first_step", strip.first_step},
          {"steps_per_column", strip.steps_per_column},
          {"rows", std::move(rows)},
          {"rows_left_out", strip.rows_left_out}};
}

}  // namespace nanwatch
