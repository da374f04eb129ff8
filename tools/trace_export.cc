// SPDX-License-Identifier: Apache-2.0
#include "tools/trace_export.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
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

double Microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

// Of a time of the process's CLOCK_MONOTONIC.
int64_t SinceBase(uint64_t monotonic_ns, const Run& run, uint64_t base_ns) {
  return RealNs(monotonic_ns, run) - static_cast<int64_t>(base_ns);
}

// Processes in containers of their own can have the same number, so each rank has a track.
int64_t TrackOf(const Run& run) { return kTrack + std::max(run.rank(), 0); }

Json Event(const char* phase, const std::string& name, const Run& run, const Json& fields) {
  Json event = {{"ph", phase},
                {"cat", "nanwatch"},
                {"name", name},
                {"pid", run.pid()},
                {"tid", TrackOf(run)}};
  event.update(fields);
  return event;
}

void AddNames(const Run& run, Json& events) {
  const std::string name = Printable(run.program()) + ", rank " + std::to_string(run.rank());
  const std::string steps = "nanwatch steps, rank " + std::to_string(run.rank());
  events.push_back(Event("M", "process_name", run, {{"args", {{"name", name}}}}));
  events.push_back(Event("M", "thread_name", run, {{"args", {{"name", steps}}}}));
}

// Two slices of a track may not overlap, by not even a nanosecond: Perfetto drops the second. A
// step's duration is rounded, so it begins where the one before it ended at the earliest. Returns
// where this one ended.
int64_t AddStep(const StepPoint& point, const Run& run, uint64_t base_ns, int64_t ended_before,
                Json& events) {
  const int64_t end = std::max(SinceBase(point.time_ns, run, base_ns), ended_before);
  const int64_t begin = std::max(
      end - static_cast<int64_t>(std::llround(point.seconds.value_or(0) * 1e9)), ended_before);
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
    events.push_back(
        Event("C", name, run, {{"ts", Microseconds(end)}, {"args", {{"value", *value}}}}));
  }
  const std::string name = point.step < 0 ? "step" : "step " + std::to_string(point.step);
  events.push_back(
      Event("X", name, run,
            {{"ts", Microseconds(begin)}, {"dur", Microseconds(end - begin)}, {"args", figures}}));
  return end;
}

void AddIncidents(const RunFacts& facts, const Verdict& verdict, uint64_t base_ns, Json& events) {
  for (const Incident& incident : verdict.incidents()) {
    const Finding& origin = incident.origin();
    const uint64_t time_ns =
        origin.run() == RunId(facts.run()) ? TimeOfRecord(origin.ticket(), facts) : 0;
    if (time_ns == 0) continue;
    events.push_back(Event("i", incident.severity() + ": " + WhatText(origin), facts.run(),
                           {{"s", "p"},
                            {"ts", Microseconds(SinceBase(time_ns, facts.run(), base_ns))},
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
    int64_t ended = INT64_MIN;
    for (const StepPoint& point : series[i].points) {
      ended = AddStep(point, facts[i].run(), base_ns, ended, events);
    }
    AddIncidents(facts[i], verdict, base_ns, events);
  }
  const Json trace = {{"schemaVersion", 1},
                      {"displayTimeUnit", "ms"},
                      {"baseTimeNanoseconds", base_ns},
                      {"traceEvents", std::move(events)}};
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace nanwatch
