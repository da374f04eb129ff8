// SPDX-License-Identifier: Apache-2.0
#include "tools/trace_export.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "daemon/ingest/run_batch.h"
#include "daemon/report/incident_words.h"
#include "daemon/report/json_report.h"
#include "daemon/report/text_layout.h"
#include "tools/run_clock.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

// A track of our own in the process. No kernel gives a thread such a number.
constexpr int64_t kTrack = 2'000'000'000;

// libkineto's: times are given since a multiple of a quarter of a year, so that microseconds with
// three decimals fit into a double.
constexpr uint64_t kQuarterSeconds = 7'889'238;

uint64_t BaseNs(const std::vector<RunFacts>& facts) {
  uint64_t first = UINT64_MAX;
  for (const RunFacts& run : facts) first = std::min(first, run.run().started_real_ns());
  if (first == UINT64_MAX) return 0;
  constexpr uint64_t kQuarterNs = kQuarterSeconds * 1'000'000'000;
  return first / kQuarterNs * kQuarterNs;
}

// Of a time of the process's CLOCK_MONOTONIC.
double Microseconds(uint64_t monotonic_ns, const Run& run, uint64_t base_ns) {
  const int64_t ns = RealNs(monotonic_ns, run) - static_cast<int64_t>(base_ns);
  return static_cast<double>(ns) / 1000;
}

Json Event(const char* phase, const std::string& name, int pid, const Json& fields) {
  Json event = {{"ph", phase}, {"cat", "nanwatch"}, {"name", name}, {"pid", pid}, {"tid", kTrack}};
  event.update(fields);
  return event;
}

void AddNames(const Run& run, Json& events) {
  const std::string name = Printable(run.program()) + ", rank " + std::to_string(run.rank());
  events.push_back(Event("M", "process_name", run.pid(), {{"args", {{"name", name}}}}));
  events.push_back(Event("M", "thread_name", run.pid(), {{"args", {{"name", "nanwatch steps"}}}}));
}

void AddStep(const StepPoint& point, const Run& run, uint64_t base_ns, Json& events) {
  const double end_us = Microseconds(point.time_ns, run, base_ns);
  const double duration_us = point.seconds.value_or(0) * 1e6;
  Json figures = {{"level", point.level}, {"bad", point.bad}, {"skipped", point.skipped}};
  const std::pair<const char*, const std::optional<double>&> counters[] = {
      {"loss", point.loss},
      {"gradient norm", point.gradient_norm},
      {"loss scale", point.scale},
      {"learning rate", point.learning_rate}};
  for (const auto& [name, value] : counters) {
    if (value.has_value()) figures[name] = JsonNumber(*value);
    // A counter has no value that is not finite.
    if (!value.has_value() || !std::isfinite(*value)) continue;
    events.push_back(Event("C", name, run.pid(), {{"ts", end_us}, {"args", {{"value", *value}}}}));
  }
  const std::string name = point.step < 0 ? "step" : "step " + std::to_string(point.step);
  events.push_back(Event("X", name, run.pid(),
                         {{"ts", end_us - duration_us}, {"dur", duration_us}, {"args", figures}}));
}

void AddIncidents(const RunFacts& facts, const Verdict& verdict, uint64_t base_ns, Json& events) {
  for (const Incident& incident : verdict.incidents()) {
    const Finding& origin = incident.origin();
    const uint64_t time_ns =
        origin.run() == RunId(facts.run()) ? TimeOfRecord(origin.ticket(), facts) : 0;
    if (time_ns == 0) continue;
    events.push_back(Event("i", incident.severity() + ": " + WhatText(origin), facts.run().pid(),
                           {{"s", "p"},
                            {"ts", Microseconds(time_ns, facts.run(), base_ns)},
                            {"args",
                             {{"where", SiteText(origin)},
                              {"line", Printable(origin.source())},
                              {"step", origin.step()}}}}));
  }
}

}  // namespace

std::string TraceJson(const std::vector<RunFacts>& facts, const Verdict& verdict,
                      const std::vector<RunSeries>& series) {
  const uint64_t base_ns = BaseNs(facts);
  Json events = Json::array();
  for (size_t i = 0; i < facts.size() && i < series.size(); ++i) {
    AddNames(facts[i].run(), events);
    for (const StepPoint& point : series[i].points) AddStep(point, facts[i].run(), base_ns, events);
    AddIncidents(facts[i], verdict, base_ns, events);
  }
  const Json trace = {{"schemaVersion", 1},
                      {"displayTimeUnit", "ms"},
                      {"baseTimeNanoseconds", base_ns},
                      {"traceEvents", std::move(events)}};
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace nanwatch
