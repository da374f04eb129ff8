// SPDX-License-Identifier: Apache-2.0
#include "tools/observations.h"

#include <algorithm>
#include <map>
#include <set>

#include "daemon/ingest/exit_file.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/ingest/whole_segment.h"
#include "daemon/store/former_launches.h"

namespace nanwatch {
namespace {

constexpr size_t kCandidatesShown = 5;
constexpr int kNewestStepsMax = 256;
// A database that was locked until SQLite gave up is not waited for again at once.
constexpr uint64_t kLockedPauseNs = 1'000'000'000;

void SortNewestFirst(std::vector<SeenRun>& runs) {
  std::sort(runs.begin(), runs.end(), [](const SeenRun& a, const SeenRun& b) {
    return a.run.started_real_ns() > b.run.started_real_ns();
  });
}

// What the daemon would do if it had read the file already.
void AddExits(const std::vector<JobExit>& exits, const Run& run, RunState& state) {
  for (const JobExit& exit : exits) {
    if (exit.pid != run.pid()) continue;
    if (exit.exit_code.has_value()) state.set_exit_code(*exit.exit_code);
    if (exit.signal.has_value()) state.set_signal(*exit.signal);
  }
}

// What the daemon sets aside once it has read the first run of a new launch.
void DropFormerLaunches(const std::string& job, std::vector<RunFacts>& facts) {
  if (!IsRepeatingJob(job)) return;
  uint64_t newest = 0;
  for (const RunFacts& run : facts) newest = std::max(newest, run.run().started_real_ns());
  std::erase_if(facts, [&](const RunFacts& run) {
    return IsFormerLaunch(run.state(), run.run().started_real_ns(), newest);
  });
}

}  // namespace

std::vector<std::string> Observations::SegmentNames() const {
  if (!places_.segment_status.ok()) return {};
  Result<SegmentListing> listing = ListSegments(places_.segment_dir);
  return listing.ok() ? std::move(listing->segments) : std::vector<std::string>();
}

Store* Observations::Database() {
  if (store_.has_value()) return &*store_;
  if (clock_.monotonic_ns() < locked_until_ns_) return nullptr;
  store_status_ = places_.state_status;
  if (!store_status_.ok()) return nullptr;
  Result<Store> opened = Store::OpenForReading(places_.database);
  if (opened.ok()) {
    store_.emplace(std::move(opened).value());
    return &*store_;
  }
  if (opened.status().kind() != ErrorKind::kNotFound) store_status_ = opened.status();
  if (opened.status().kind() == ErrorKind::kBusy)
    locked_until_ns_ = clock_.monotonic_ns() + kLockedPauseNs;
  return nullptr;
}

Status Observations::DatabaseStatus() {
  Database();
  if (store_status_.ok()) return store_status_;
  if (!places_.state_status.ok())
    return {store_status_.kind(), "the database cannot be read: " + store_status_.message()};
  return UnreadableDatabase(store_status_, places_.database);
}

std::vector<SeenRun> Observations::RunsInSegments(const std::optional<std::string>& job) {
  std::vector<SeenRun> runs;
  foreign_.clear();
  for (const std::string& name : SegmentNames()) {
    const std::string path = SegmentPath(name);
    Result<SegmentReader> reader = SegmentReader::Open(path, SegmentReader::Access::kLook);
    if (!reader.ok()) {
      if (reader.status().kind() != ErrorKind::kNotFound) {
        foreign_.push_back({.name = name, .reason = reader.status().message()});
      }
      continue;
    }
    SeenRun seen = {.id = reader->run_id(),
                    .job = JobOf(reader->run()),
                    .run = reader->run(),
                    .state = {},
                    .live = reader->WriterLives(clock_),
                    .has_segment = true};
    if (job.has_value() && seen.job != *job) continue;
    const Result<SegmentFacts> whole = ReadWhole(path, clock_);
    if (whole.ok()) {
      seen.state = whole->facts.state();
      seen.was_whole = whole->is_whole;
      const auto& steps = whole->facts.steps_read();
      seen.newest_steps.assign(steps.end() - std::min(steps.size(), kNewestStepsMax), steps.end());
    }
    if (!seen.live) AddExits(UnreadExits(seen.job), seen.run, seen.state);
    runs.push_back(std::move(seen));
  }
  return runs;
}

// Opens those that are new and lets go of those whose file is no longer there.
void Observations::OpenSegments() {
  std::map<std::string, OpenSegment> open;
  foreign_.clear();
  for (const std::string& name : SegmentNames()) {
    const auto known = open_segments_.find(name);
    if (known != open_segments_.end() && !known->second.reader.IsUnlinked()) {
      open.emplace(name, std::move(known->second));
      continue;
    }
    Result<SegmentReader> reader =
        SegmentReader::Open(SegmentPath(name), SegmentReader::Access::kLook);
    if (reader.ok()) {
      open.emplace(name, OpenSegment{.reader = *std::move(reader)});
    } else if (reader.status().kind() != ErrorKind::kNotFound) {
      foreign_.push_back({.name = name, .reason = reader.status().message()});
    }
  }
  open_segments_ = std::move(open);
}

std::vector<LiveRun> Observations::LiveRuns(const LiveRunLimits& limits) {
  OpenSegments();
  std::vector<LiveRun> runs;
  std::map<std::string, std::vector<JobExit>> exits;  // of jobs, each read once
  for (auto& [name, segment] : open_segments_) {
    SegmentReader& reader = segment.reader;
    const bool lives = reader.WriterLives(clock_);
    if (!lives && !limits.ended_too) continue;
    RunGlance glance = reader.Glance(limits.steps_max);
    if (const uint64_t findings = glance.state.values_bad(); findings != segment.findings_seen) {
      segment.newest_sites = reader.NewestSites(limits.sites_max);
      segment.findings_seen = findings;
    }
    runs.push_back({.seen = {.id = reader.run_id(),
                             .job = JobOf(reader.run()),
                             .run = reader.run(),
                             .state = std::move(glance.state),
                             .live = lives,
                             .has_segment = true},
                    .last_steps = std::move(glance.last_steps),
                    .last_stats = std::move(glance.last_stats),
                    .newest_sites = segment.newest_sites});
    if (lives) continue;
    SeenRun& seen = runs.back().seen;
    const auto [of_job, is_new] = exits.try_emplace(seen.job);
    if (is_new) of_job->second = UnreadExits(seen.job);
    AddExits(of_job->second, seen.run, seen.state);
  }
  return runs;
}

JobNames Observations::Jobs() {
  OpenSegments();
  JobNames jobs;
  for (auto& [name, segment] : open_segments_) {
    const std::string job = JobOf(segment.reader.run());
    if (segment.reader.WriterLives(clock_)) jobs.live.insert(job);
    jobs.all.insert(job);
  }
  Store* store = Database();
  if (store == nullptr) {
    jobs.stored = store_status_;
    return jobs;
  }
  const Result<std::vector<RunRow>> rows = store->Runs({});
  if (!rows.ok()) {
    jobs.stored = store_status_ = rows.status();
    return jobs;
  }
  for (const RunRow& row : *rows) jobs.all.insert(row.job);
  return jobs;
}

bool Observations::HasNewFindings() {
  OpenSegments();
  bool news = std::exchange(segments_known_, open_segments_.size()) != open_segments_.size();
  for (auto& [name, segment] : open_segments_) {
    const uint64_t now = segment.reader.FindingsPublished();
    news |= std::exchange(segment.published, now) != now;
  }
  return news;
}

std::optional<SeenRun> Observations::StoredRun(const std::string& id) {
  Store* store = Database();
  if (store == nullptr) return std::nullopt;
  const Result<RunRow> row = store->FindRun(id);
  if (!row.ok()) return std::nullopt;
  return SeenRun{.id = row->id, .job = row->job, .run = row->run, .state = row->state};
}

std::optional<std::vector<Incident>> Observations::IncidentsOfJob(const std::string& job) {
  Store* store = Database();
  if (store == nullptr) return std::nullopt;
  const Result<std::vector<std::string>> runs = store->RunsOfJob(job);
  if (!runs.ok() || runs->empty()) return std::nullopt;
  Result<std::vector<Incident>> incidents = store->Incidents(job);
  if (!incidents.ok()) return std::nullopt;
  return *std::move(incidents);
}

std::vector<SeenRun> Observations::Join(const std::optional<std::string>& job) {
  std::vector<SeenRun> runs = RunsInSegments(job);
  std::set<std::string> known;
  for (const SeenRun& run : runs) known.insert(run.id);
  if (Store* store = Database(); store != nullptr) {
    const Result<std::vector<RunRow>> rows = store->Runs({.job = job});
    if (!rows.ok()) store_status_ = rows.status();
    for (const RunRow& row : rows.ok() ? *rows : std::vector<RunRow>()) {
      if (known.contains(row.id)) continue;
      runs.push_back({.id = row.id, .job = row.job, .run = row.run, .state = row.state});
    }
  }
  SortNewestFirst(runs);
  return runs;
}

std::vector<SeenRun> Observations::Runs() { return Join(std::nullopt); }

std::vector<SeenRun> Observations::RunsOfJob(const std::string& job) { return Join(job); }

std::vector<RunFacts> Observations::FactsOfJob(const std::string& job) {
  std::map<std::string, RunFacts> by_run;
  for (const std::string& name : SegmentNames()) {
    const auto open = open_segments_.find(name);
    if (open != open_segments_.end() && JobOf(open->second.reader.run()) != job) continue;
    Result<SegmentFacts> whole = ReadWhole(SegmentPath(name), clock_);
    if (!whole.ok() || JobOf(whole->facts.run()) != job) continue;
    const std::string id = RunId(whole->facts.run());
    by_run[id] = std::move(whole->facts);
  }
  Store* store = Database();
  facts_status_ = store == nullptr ? store_status_ : Status();
  if (store != nullptr) {
    const Result<std::vector<RunFacts>> stored = store->FactsOfJob(job);
    if (!stored.ok()) facts_status_ = store_status_ = stored.status();
    for (const RunFacts& old : stored.ok() ? *stored : std::vector<RunFacts>()) {
      RunFacts joined = old;
      RunFacts& slot = by_run[RunId(old.run())];
      if (slot.has_run()) MergeInto(joined, slot);
      slot = std::move(joined);
    }
  }
  std::vector<RunFacts> facts;
  facts.reserve(by_run.size());
  for (auto& [id, run] : by_run) facts.push_back(std::move(run));
  DropFormerLaunches(job, facts);
  const std::vector<JobExit> exits = UnreadExits(job);
  for (RunFacts& run : facts) AddExits(exits, run.run(), *run.mutable_state());
  std::sort(facts.begin(), facts.end(), [](const RunFacts& a, const RunFacts& b) {
    return a.run().started_real_ns() < b.run().started_real_ns();
  });
  return facts;
}

std::vector<RunFacts> Observations::FactsWithStatsOfJob(const std::string& job) {
  std::vector<RunFacts> all = FactsOfJob(job);
  Store* store = Database();
  for (RunFacts& facts : all) {
    if (store == nullptr) break;
    const Result<std::vector<StatsSnapshot>> stored = store->Stats(RunId(facts.run()));
    if (!stored.ok()) continue;  // only its segment knows the run
    for (const StatsSnapshot& snapshot : *stored) *facts.add_stats_read() = snapshot;
  }
  return all;
}

std::vector<SeenRun> Observations::StoredRuns(int count_max) {
  std::vector<SeenRun> runs;
  Store* store = Database();
  if (store == nullptr) return runs;
  const Result<std::vector<RunRow>> rows = store->Runs({.count_max = count_max});
  if (!rows.ok()) {
    store_status_ = rows.status();
    return runs;
  }
  for (const RunRow& row : *rows)
    runs.push_back({.id = row.id, .job = row.job, .run = row.run, .state = row.state});
  return runs;
}

std::vector<Warning> Observations::WarningsOfJob(const std::string& job) {
  Store* store = Database();
  if (store == nullptr) return {};
  Result<std::vector<Warning>> warnings = store->Warnings(job);
  return warnings.ok() ? *std::move(warnings) : std::vector<Warning>();
}

std::optional<int64_t> Observations::ChangeCounter() {
  Store* store = Database();
  if (store == nullptr) return std::nullopt;
  const Result<int64_t> counter = store->ChangeCounter();
  return counter.ok() ? std::optional(*counter) : std::nullopt;
}

std::vector<StepSummary> Observations::StepsOfRun(const std::string& id) {
  Store* store = Database();
  if (store == nullptr) return {};
  Result<std::vector<StepSummary>> steps = store->Steps(id);
  return steps.ok() ? *std::move(steps) : std::vector<StepSummary>();
}

std::vector<std::string> Observations::ExitFilesOfJob(const std::string& job) const {
  std::vector<std::string> paths;
  const Result<SegmentListing> listing = ListSegments(places_.segment_dir);
  if (!listing.ok()) return paths;
  for (const std::string& name : listing->exits) {
    if (!name.starts_with(job)) continue;
    const Result<JobExit> exit = ReadJobExit(SegmentPath(name));
    if (exit.ok() && exit->job == job) paths.push_back(SegmentPath(name));
  }
  return paths;
}

std::vector<JobExit> Observations::UnreadExits(const std::string& job) const {
  std::vector<JobExit> exits;
  for (const std::string& path : ExitFilesOfJob(job)) {
    const Result<JobExit> exit = ReadJobExit(path);
    if (exit.ok()) exits.push_back(*exit);
  }
  std::sort(exits.begin(), exits.end(),
            [](const JobExit& a, const JobExit& b) { return a.ended_real_ns < b.ended_real_ns; });
  return exits;
}

std::optional<JobExit> Observations::ExitOfJob(const std::string& job) {
  const std::vector<JobExit> unread = UnreadExits(job);
  if (!unread.empty()) return unread.back();
  Store* store = Database();
  if (store == nullptr) return std::nullopt;
  const Result<std::optional<JobExit>> exit = store->ExitOfJob(job);
  return exit.ok() ? *exit : std::nullopt;
}

Result<std::string> Observations::ResolveJob(const std::string& name) {
  const std::vector<SeenRun> runs = Runs();
  const Status database = DatabaseStatus();
  if (runs.empty())
    return database.ok() ? Status(ErrorKind::kNotFound, NoRunIsKnown(places_)) : database;
  if (name.empty()) return runs.front().job;
  // A number is a process, the newest that had it, before it is the beginning of an id.
  const auto of_process = std::find_if(runs.begin(), runs.end(), [&](const SeenRun& run) {
    return name == std::to_string(run.run.pid()) || name == std::to_string(run.run.pid_outer());
  });
  const auto is_named = [&](const SeenRun& run) { return run.id == name || run.job == name; };
  if (of_process != runs.end() && std::none_of(runs.begin(), runs.end(), is_named)) {
    return of_process->job;
  }
  std::set<std::string> jobs;
  std::string candidates;
  for (const SeenRun& run : runs) {
    if (run.id == name || run.job == name) return run.job;
    if (!run.id.starts_with(name) && !run.job.starts_with(name)) continue;
    if (jobs.insert(run.job).second && jobs.size() <= kCandidatesShown)
      candidates += " " + (run.job.starts_with(name) ? run.job : run.id);
  }
  if (jobs.size() == 1) return *jobs.begin();
  if (jobs.empty()) {
    if (!database.ok()) return database;
    return Status(ErrorKind::kNotFound,
                  "no run or job begins with '" + name + "': 'nanwatch ps --all' lists them");
  }
  return Status(ErrorKind::kAmbiguous,
                "'" + name + "' matches several jobs: give more of the id, such as" + candidates +
                    (jobs.size() > kCandidatesShown ? " ..." : ""));
}

}  // namespace nanwatch
