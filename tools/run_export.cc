// SPDX-License-Identifier: Apache-2.0
#include "tools/run_export.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "daemon/explain/parameter_reports.h"
#include "daemon/report/json_report.h"
#include "daemon/report/text_layout.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

// Lines end with CRLF there, and a text with one of these is quoted.
std::string CsvText(const std::string& text) {
  std::string printable = Printable(text);
  if (printable.find_first_of(",\"\r\n") == std::string::npos) return printable;
  std::string quoted = "\"";
  for (const char c : printable) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string CsvNumber(const std::optional<double>& value) {
  if (!value.has_value()) return "";
  const Json number = JsonNumber(*value);
  return number.is_string() ? number.get<std::string>() : number.dump();
}

std::string Line(const char* type, const Json& fields) {
  Json line = {{"type", type}};
  line.update(fields);
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json StepJson(const RunSeries& run, const StepPoint& point) {
  const auto number = [](const std::optional<double>& value) {
    return value.has_value() ? JsonNumber(*value) : Json();
  };
  return {{"run", run.run},
          {"rank", run.rank},
          {"step", point.step},
          {"iteration", point.x},
          {"monotonic_ns", std::to_string(point.time_ns)},
          {"loss", number(point.loss)},
          {"gradient_norm", number(point.gradient_norm)},
          {"loss_scale", number(point.scale)},
          {"learning_rate", number(point.learning_rate)},
          {"overhead", number(point.overhead)},
          {"seconds", number(point.seconds)},
          {"limit_share", number(point.limit_share)},
          {"nearest_layer", point.nearest_layer},
          {"level", point.level},
          {"non_finite", point.non_finite},
          {"bad", point.bad},
          {"skipped", point.skipped}};
}

}  // namespace

std::string StepsCsv(const std::vector<RunSeries>& series) {
  std::string text =
      "run,rank,step,iteration,monotonic_ns,loss,gradient_norm,loss_scale,learning_rate,overhead,"
      "seconds,limit_share,"
      "nearest_layer,level,non_finite,bad,skipped\r\n";
  for (const RunSeries& run : series) {
    for (const StepPoint& point : run.points) {
      text += run.run + "," + std::to_string(run.rank) + ",";
      text += (point.step < 0 ? "" : std::to_string(point.step)) + "," + std::to_string(point.x);
      text += "," + std::to_string(point.time_ns);
      for (const auto* value :
           {&point.loss, &point.gradient_norm, &point.scale, &point.learning_rate, &point.overhead,
            &point.seconds, &point.limit_share})
        text += "," + CsvNumber(*value);
      text += "," + CsvText(point.nearest_layer) + "," + point.level;
      for (const bool flag : {point.non_finite, point.bad, point.skipped})
        text += flag ? ",1" : ",0";
      text += "\r\n";
    }
  }
  return text;
}

std::string JobJsonLines(const std::string& job, const std::vector<RunFacts>& facts,
                         const Verdict& verdict, const std::vector<RunSeries>& series) {
  std::string text;
  for (const RunInfo& run : verdict.runs()) text += Line("run", JsonOf(run));
  for (const RunSeries& run : series) {
    for (const StepPoint& point : run.points) text += Line("step", StepJson(run, point));
  }
  for (const Incident& incident : verdict.incidents()) text += Line("incident", JsonOf(incident));
  for (const Warning& warning : verdict.warnings()) text += Line("warning", JsonOf(warning));
  const StatsReport stats = ReportStats(facts, job);
  for (const SnapshotReport& snapshot : stats.snapshots())
    text += Line("snapshot", JsonOf(snapshot));
  return text;
}

}  // namespace nanwatch
