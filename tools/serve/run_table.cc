// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/run_table.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "tools/run_words.h"

namespace nanwatch {
namespace {

// A job's last conclusion comes a moment after its last run has ended.
constexpr uint64_t kSettledAfterNs = 60'000'000'000;

TableRun RowOf(SeenRun seen) {
  TableRun row;
  row.id = seen.id;
  row.job = seen.job;
  row.live = seen.live;
  row.step = StepOf(seen);
  row.state_text = StateOf(seen);
  if (seen.state.has_loss()) row.loss = seen.state.loss();
  row.run = std::move(seen.run);
  row.state = std::move(seen.state);
  return row;
}

TableRun RowOf(LiveRun live) {
  live.seen.newest_steps = live.last_steps;
  TableRun row = RowOf(std::move(live.seen));
  for (auto step = live.last_steps.rbegin(); step != live.last_steps.rend(); ++step) {
    if (!row.loss && step->has_loss()) row.loss = step->loss();
    if (!row.live) continue;
    if (!row.gradient_norm && step->has_gradient_norm()) row.gradient_norm = step->gradient_norm();
    if (!row.scale && step->has_scale()) row.scale = step->scale();
  }
  return row;
}

}  // namespace

void RunTable::ReadStored() {
  const std::optional<int64_t> change = observations_.ChangeCounter();
  database_status_ = observations_.DatabaseStatus();
  changed_ = !change.has_value() || change != change_;
  if (!changed_) return;
  change_ = change;
  stored_.clear();
  for (SeenRun& run : observations_.StoredRuns(kTableRunsMax))
    stored_.push_back(RowOf(std::move(run)));
}

void RunTable::ReadJobs(uint64_t now_real_ns) {
  if (!changed_) return;
  std::map<std::string, bool> settled;
  for (const TableRun& run : runs_) {
    const bool is = !run.live && run.state.ended() && run.state.ended_real_ns() != 0 &&
                    now_real_ns > run.state.ended_real_ns() + kSettledAfterNs;
    const auto [found, is_new] = settled.try_emplace(run.job, is);
    if (!is_new) found->second = found->second && is;
  }
  std::map<std::string, TableJob> jobs;
  for (const auto& [job, is_settled] : settled) {
    const auto known = jobs_.find(job);
    if (is_settled && known != jobs_.end()) {
      jobs[job] = std::move(known->second);
      continue;
    }
    jobs[job] = {.incidents = observations_.IncidentsOfJob(job).value_or(std::vector<Incident>()),
                 .warnings = observations_.WarningsOfJob(job)};
  }
  jobs_ = std::move(jobs);
}

void RunTable::Refresh() {
  // Segments before the database, as everywhere.
  std::vector<TableRun> live, unread, ended;
  for (LiveRun& run : observations_.LiveRuns({.ended_too = true})) {
    TableRun row = RowOf(std::move(run));
    (row.live ? live : unread).push_back(std::move(row));
  }
  ReadStored();
  std::set<std::string> known;
  for (const TableRun& run : live) known.insert(run.id);
  // Of a run that has ended the database knows more than the segment.
  for (const TableRun& run : stored_) {
    if (known.insert(run.id).second) ended.push_back(run);
  }
  for (TableRun& run : unread) {
    if (known.insert(run.id).second) ended.push_back(std::move(run));
  }
  for (std::vector<TableRun>* runs : {&live, &ended}) {
    std::stable_sort(runs->begin(), runs->end(), [](const TableRun& a, const TableRun& b) {
      return a.run.started_real_ns() > b.run.started_real_ns();
    });
  }
  runs_ = std::move(live);
  std::move(ended.begin(), ended.end(), std::back_inserter(runs_));
  if (runs_.size() > kTableRunsMax) runs_.resize(kTableRunsMax);
  ReadJobs(clock_.real_ns());
}

Result<std::string> JobOfName(const std::vector<std::pair<std::string, std::string>>& runs,
                              const std::string& name) {
  std::set<std::string> jobs;
  for (const auto& [id, job] : runs) {
    if (id == name || job == name) return job;
    if (!name.empty() && (id.starts_with(name) || job.starts_with(name))) jobs.insert(job);
  }
  if (jobs.size() == 1) return *jobs.begin();
  if (jobs.empty())
    return Status(ErrorKind::kNotFound, "no run or job begins with that: /api/v1/runs lists them");
  return Status(ErrorKind::kAmbiguous, "several jobs begin with that: give more of the id");
}

}  // namespace nanwatch
