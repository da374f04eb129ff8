// SPDX-License-Identifier: Apache-2.0
#include "tools/top_look.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "daemon/base/clock.h"
#include "daemon/base/directories.h"
#include "daemon/correlate/step_clock.h"
#include "daemon/correlate/wire_names.h"
#include "daemon/report/incident_words.h"
#include "proto/wire/cell_record.h"
#include "proto/wire/record.h"
#include "tools/daemon_start.h"
#include "tools/finding_line.h"
#include "tools/idle_kernel.h"
#include "tools/run_words.h"

namespace nanwatch {
namespace {

constexpr uint64_t kRateWindowNs = 5'000'000'000;
constexpr uint64_t kEndedShownNs = 30'000'000'000;
constexpr size_t kFindingsMax = 64;

// What one refresh has read. It has little about trainings before the last steps, so a training may
// be shown differently from how the daemon reports it.
RunFacts FactsOf(const LiveRun& run) {
  RunFacts facts;
  *facts.mutable_run() = run.seen.run;
  *facts.mutable_state() = run.seen.state;
  for (const StepSummary& step : run.last_steps) *facts.add_steps_read() = step;
  return facts;
}

// Another training has begun to count its steps.
bool BeginsAnew(const StepMark& mark, const std::vector<StepMark>& marks) {
  return !marks.empty() && mark.step < marks.back().step && mark.time_ns > marks.back().time_ns;
}

// Steps that a GradScaler skipped took their time too. Where nothing is known of an optimizer the
// entries themselves are counted.
std::vector<StepMark> MarksOf(const LiveRun& run, const StepClock& clock) {
  std::vector<StepMark> marks;
  for (const StepSummary& step : run.last_steps) {
    const int64_t counted = clock.Read(step.clocks()).step;
    const StepMark mark = {.step = counted >= 0 ? counted + step.clocks().scaler_skips()
                                                : static_cast<int64_t>(step.index()),
                           .time_ns = step.time_ns(),
                           .after_pause = (step.flags() & wire::kStepBeginsCell) != 0};
    if (mark.after_pause || BeginsAnew(mark, marks)) marks.clear();
    // With several optimizers a step has several entries; the first to have it counts.
    if (marks.empty() || mark.step > marks.back().step) marks.push_back(mark);
  }
  return marks;
}

// The newest recorded value: with several optimizers not every entry has every value.
template <typename Has, typename Get>
std::optional<double> Newest(const std::vector<StepSummary>& steps, Has has, Get get) {
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (((*step).*has)()) return ((*step).*get)();
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> StepRate(const std::vector<StepMark>& marks, uint64_t now_ns,
                               bool may_pause) {
  if (marks.size() < 2) return std::nullopt;
  const StepMark& last = marks.back();
  // The first mark in the window, but one step before the last in any case.
  size_t first = marks.size() - 2;
  while (first > 0 && last.time_ns - marks[first - 1].time_ns <= kRateWindowNs) --first;
  const StepMark& from = marks[first];
  if (last.step <= from.step || last.time_ns <= from.time_ns) return std::nullopt;
  const auto steps = static_cast<double>(last.step - from.step);
  const double busy_s = static_cast<double>(last.time_ns - from.time_ns) * 1e-9;
  const double since_s =
      now_ns > last.time_ns ? static_cast<double>(now_ns - last.time_ns) * 1e-9 : 0;
  const double late_s = std::max(0.0, since_s - busy_s / steps);
  constexpr double kLateSteps = 10;
  constexpr double kLateMinS = 2;
  if (may_pause && late_s > std::max(kLateMinS, kLateSteps * busy_s / steps)) return std::nullopt;
  return steps / (busy_s + late_s);
}

std::optional<double> UpdateRatioOf(const StatsSnapshot& snapshot) {
  std::vector<double> ratios;
  for (const ParameterStats& parameter : snapshot.parameters()) {
    const double ratio = parameter.update_norm() / parameter.weight_norm();
    if (parameter.dims() >= 2 && std::isfinite(ratio)) ratios.push_back(ratio);
  }
  if (ratios.empty()) return std::nullopt;
  const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
  std::nth_element(ratios.begin(), middle, ratios.end());
  return *middle;
}

std::string VerdictSoFar(const std::vector<Incident>& incidents, uint64_t findings, bool watches) {
  const bool anomaly =
      std::any_of(incidents.begin(), incidents.end(),
                  [](const Incident& incident) { return incident.severity() != "info"; });
  if (anomaly) return "anomaly";
  if (!incidents.empty()) return "expected";
  if (!watches) return "unknown";
  return findings == 0 ? "clean" : "";
}

TopRow RowOfRun(const SeenRun& run) {
  TopRow row = {.run = run.id,
                .job = run.job,
                .rank = run.run.rank(),
                .world_size = run.run.world_size(),
                .pid = run.run.pid(),
                .host = run.run.host(),
                .program = run.run.program(),
                .state = StateOf(run),
                .level = LevelName(run.state.level()),
                .findings = run.state.values_bad()};
  if (run.state.has_loss()) row.loss = run.state.loss();
  if (run.state.has_overhead_percent()) {
    row.overhead_percent = run.state.overhead_percent();
    row.overhead_interval = {run.state.overhead_low(), run.state.overhead_high()};
  }
  return row;
}

TopLook::TopLook() : observations_(FindPlaces(ProcessEnvironment())) {}

TopRow TopLook::RowOf(const LiveRun& run, uint64_t now_ns) {
  const SeenRun& seen = run.seen;
  TopRow row = RowOfRun(seen);
  const StepClock clock(FactsOf(run));
  if (const int64_t step = clock.Read(seen.state.clocks()).step; step >= 0) row.step = step;
  if (!row.loss.has_value())
    row.loss = Newest(run.last_steps, &StepSummary::has_loss, &StepSummary::loss);
  row.gradient_norm =
      Newest(run.last_steps, &StepSummary::has_gradient_norm, &StepSummary::gradient_norm);
  if (run.last_stats.has_value()) row.update_ratio = UpdateRatioOf(*run.last_stats);
  row.scale = Newest(run.last_steps, &StepSummary::has_scale, &StepSummary::scale);
  for (const StepSummary& step : run.last_steps) {
    if (step.has_loss()) row.losses.push_back(step.loss());
  }
  std::vector<StepMark>& marks = runs_[seen.id].marks;
  for (const StepMark& mark : MarksOf(run, clock)) {
    const bool is_newer = marks.empty() || mark.time_ns > marks.back().time_ns;
    if (BeginsAnew(mark, marks) || (mark.after_pause && is_newer)) marks.clear();
    if (marks.empty() || mark.step > marks.back().step) marks.push_back(mark);
  }
  // One older than the window is kept, for steps that take longer than it.
  while (marks.size() > 2 && marks.back().time_ns - marks[1].time_ns > kRateWindowNs) {
    marks.erase(marks.begin());
  }
  const bool is_notebook =
      std::any_of(seen.run.command().begin(), seen.run.command().end(),
                  [](const std::string& word) { return IsNotebookCommand(word); });
  row.steps_per_second = StepRate(marks, now_ns, is_notebook);
  return row;
}

void TopLook::AddFindings(const LiveRun& run, TopPicture& picture) const {
  if (run.newest_sites.empty()) return;
  const StepClock clock(FactsOf(run));
  for (const Site& site : run.newest_sites) {
    if (site.finding_class() == static_cast<uint32_t>(wire::FindingClass::kKilled)) continue;
    picture.findings.push_back({.run = run.seen.id,
                                .rank = run.seen.run.rank(),
                                .step = clock.Read(site.last_clocks()).step,
                                .phase = PhaseName(site.phase()),
                                .layer = site.layer(),
                                .op = site.op(),
                                .param = site.param(),
                                .finding_class = FindingClassName(site.finding_class()),
                                .source = site.source(),
                                .count = site.count()});
  }
}

void TopLook::AddVerdicts(TopPicture& picture) {
  std::map<std::string, uint64_t> findings;  // by job
  std::set<std::string> idle;                // jobs with a process that checks nothing
  Verdict known;                             // the runs alone
  for (const TopRow& row : picture.rows) {
    findings[row.job] += row.findings;
    if (row.level == LevelName(static_cast<uint32_t>(wire::Level::kIdle))) idle.insert(row.job);
    RunInfo& run = *known.add_runs();
    run.set_id(row.run);
    run.set_program(row.program);
  }
  std::map<std::string, std::string> verdicts;
  for (const auto& [job, count] : findings) {
    const std::optional<std::vector<Incident>> incidents = observations_.IncidentsOfJob(job);
    if (!incidents.has_value()) continue;
    verdicts[job] = VerdictSoFar(*incidents, count, /*watches=*/!idle.contains(job));
    for (const Incident& incident : *incidents)
      picture.incidents.push_back(IncidentLine(known, incident));
  }
  for (TopRow& row : picture.rows) row.verdict = verdicts[row.job];
}

void TopLook::AddEnded(TopPicture& picture, uint64_t now_ns) {
  std::set<std::string> live;
  for (const TopRow& row : picture.rows) live.insert(row.run);
  for (auto known = runs_.begin(); known != runs_.end();) {
    Remembered& run = known->second;
    if (live.contains(known->first)) {
      ++known;
      continue;
    }
    if (run.ended_at_ns == 0) run.ended_at_ns = now_ns;
    if (now_ns - run.ended_at_ns > kEndedShownNs) {
      known = runs_.erase(known);
      continue;
    }
    run.row.live = false;
    run.row.steps_per_second.reset();
    run.row.state = "ended";
    // The database is a little behind; its last word has how it ended.
    if (const std::optional<SeenRun> stored = observations_.StoredRun(known->first);
        stored.has_value() && stored->state.ended()) {
      run.row.state = StateOf(*stored);
      run.row.findings = std::max(run.row.findings, stored->state.values_bad());
    }
    picture.rows.push_back(run.row);
    ++known;
  }
}

std::string TopLook::Note(bool has_rows) const {
  const Places& places = observations_.places();
  std::string note;
  const auto add = [&note](const std::string& sentence) {
    if (!sentence.empty()) note += (note.empty() ? "" : "; ") + sentence;
  };
  if (!has_rows) add("no job is running: start one with 'nanwatch run -- python train.py'");
  const Status& segments = places.segment_status;
  if (!segments.ok() && segments.kind() != ErrorKind::kNotFound) add(segments.message());
  if (has_rows && !RunningDaemon(places.segment_dir).has_value()) {
    add("no daemon is running, so there are no verdicts: 'nanwatchd' starts it");
  }
  if (!observations_.foreign().empty()) {
    add("not read: " + observations_.foreign().front().name + ", " +
        observations_.foreign().front().reason);
  }
  add(places.note);
  return note;
}

TopPicture TopLook::Take() {
  // Where things are may change until a first job has made them, and with the daemon.
  if (runs_.empty()) observations_ = Observations(FindPlaces(ProcessEnvironment()));
  const uint64_t now_ns = clock_.monotonic_ns();
  TopPicture picture;
  picture.host = HostName();
  picture.time = FormatUtc(clock_.real_ns()).substr(11, 8) + " UTC";
  for (const LiveRun& run : observations_.LiveRuns({})) {
    picture.rows.push_back(RowOf(run, now_ns));
    AddFindings(run, picture);
  }
  const auto order = [](const TopFinding& finding) {
    return std::tuple(finding.finding_class == "propagate", -finding.step);
  };
  std::stable_sort(
      picture.findings.begin(), picture.findings.end(),
      [order](const TopFinding& a, const TopFinding& b) { return order(a) < order(b); });
  if (picture.findings.size() > kFindingsMax) picture.findings.resize(kFindingsMax);
  for (const TopRow& row : picture.rows) {
    runs_[row.run].row = row;
    runs_[row.run].ended_at_ns = 0;
  }
  AddEnded(picture, now_ns);
  AddVerdicts(picture);
  picture.note = Note(!picture.rows.empty());
  return picture;
}

}  // namespace nanwatch
