// SPDX-License-Identifier: Apache-2.0
#include "tools/top_fleet.h"

#include <set>

#include "daemon/base/clock.h"
#include "daemon/report/cell_text.h"
#include "daemon/report/incident_words.h"
#include "proto/wire/segment.h"
#include "tools/run_words.h"

namespace nanwatch {

TopRow TopFleet::RowOf(const SeenRun& run, uint64_t recorded_ns) {
  TopRow row = RowOfRun(run);
  row.live = run.live;
  if (const int64_t step = StepOf(run); step >= 0) row.step = step;
  Mark& mark = marks_[run.id];
  if (row.step.has_value() && recorded_ns > mark.recorded_ns) {
    const double seconds =
        static_cast<double>(recorded_ns - mark.recorded_ns) / static_cast<double>(kNsPerSecond);
    mark.steps_per_second.reset();
    if (mark.recorded_ns != 0 && *row.step >= mark.step)
      mark.steps_per_second = static_cast<double>(*row.step - mark.step) / seconds;
    mark.step = *row.step;
    mark.recorded_ns = recorded_ns;
  }
  if (run.live) row.steps_per_second = mark.steps_per_second;
  return row;
}

TopPicture TopFleet::Take() {
  const Result<FleetListing> listing = AskFleetRuns(fleet_);
  trouble_ = listing.status();
  if (!listing.ok()) return last_;
  TopPicture picture;
  picture.host = "fleet at " + fleet_.url;
  picture.time = FormatUtc(SystemClock().real_ns()).substr(11, 8) + " UTC";
  Verdict known;  // the runs alone
  std::map<std::string, uint64_t> findings;
  std::set<std::string> idle;  // jobs with a process that checks nothing
  for (size_t i = 0; i < listing->runs.size(); ++i) {
    const SeenRun& run = listing->runs[i];
    if (!run.live && !run.is_silent) continue;
    picture.rows.push_back(RowOf(run, listing->recorded_ns[i]));
    findings[run.job] += run.state.values_bad();
    if (run.state.level() == static_cast<uint32_t>(wire::Level::kIdle)) idle.insert(run.job);
    RunInfo& info = *known.add_runs();
    info.set_id(run.id);
    info.set_program(run.run.program());
  }
  for (TopRow& row : picture.rows) {
    const auto of_job = listing->incidents.find(row.job);
    row.verdict =
        VerdictSoFar(of_job == listing->incidents.end() ? std::vector<Incident>() : of_job->second,
                     findings[row.job], /*watches=*/!idle.contains(row.job));
  }
  for (const auto& [job, incidents] : listing->incidents) {
    if (!findings.contains(job)) continue;
    for (const Incident& incident : incidents)
      picture.incidents.push_back(IncidentLine(known, incident));
  }
  if (picture.rows.empty()) picture.note = "no job of the fleet is running";
  last_ = picture;
  return picture;
}

}  // namespace nanwatch
