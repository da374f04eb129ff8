// SPDX-License-Identifier: Apache-2.0
// Everything that can be known about this user's jobs now: the daemon's database joined with the
// segments that are still there. Reads both and changes neither, so it works with or without a
// daemon.
//
// Segments are always read before the database: a segment that vanishes in between was committed
// first, so no finding falls between the two.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "daemon/ingest/segment_directory_watch.h"
#include "daemon/ingest/segment_reader.h"
#include "daemon/store/store.h"
#include "proto/wire/naming.h"
#include "tools/places.h"
#include "verdict.pb.h"

namespace nanwatch {

// A run, and whether its process lives.
struct SeenRun {
  std::string id;
  std::string job;
  Run run;
  RunState state;
  bool live = false;         // its process runs
  bool is_silent = false;    // of a fleet: it has not ended, and nothing is heard of it
  bool has_segment = false;  // not yet read to its end by a daemon
  bool was_whole = false;    // of Runs and RunsOfJob: that segment was read to its end here
  // Of Runs and RunsOfJob, from its segment; oldest first. They say which optimizer the newest step
  // belongs to, where one training follows another.
  std::vector<StepSummary> newest_steps = {};
};

// A live run as it is now.
struct LiveRun {
  SeenRun seen;
  std::vector<StepSummary> last_steps;  // oldest first
  std::optional<StatsSnapshot> last_stats;
  std::vector<Site> newest_sites;  // as SegmentReader::NewestSites
};

// How much of a live run is wanted.
struct LiveRunLimits {
  uint64_t steps_max = 64;
  size_t sites_max = 8;
  bool ended_too = false;  // those whose segment no daemon has read to its end
};

struct JobNames {
  std::set<std::string> all;
  std::set<std::string> live;  // a process of it runs
  Status stored;               // why those that only the database knows are missing, else ok
};

class Observations {
 public:
  explicit Observations(Places places) : places_(std::move(places)) {}

  // Newest start first. Reads the segments' headers and counters, and the database.
  [[nodiscard]] std::vector<SeenRun> Runs();
  // Of one job only.
  [[nodiscard]] std::vector<SeenRun> RunsOfJob(const std::string& job);
  // The runs whose process lives, from their segments alone; with `ended_too`, all that have one.
  // For polling: segments stay open from call to call. Of each only the live block and the last
  // steps are read, and its sites if there are new findings.
  [[nodiscard]] std::vector<LiveRun> LiveRuns(const LiveRunLimits& limits);
  // The jobs of all runs. For polling, like HasNewFindings: reads no finding, and segments stay
  // open.
  [[nodiscard]] JobNames Jobs();
  // Whether a segment came or went, or may hold a finding that was not there at the last call: a
  // few loads a segment.
  [[nodiscard]] bool HasNewFindings();
  // The run with this id as the database knows it.
  [[nodiscard]] std::optional<SeenRun> StoredRun(const std::string& id);
  // Files that the last call of Runs, RunsOfJob or LiveRuns could not read.
  [[nodiscard]] const std::vector<UnreadableFile>& foreign() const { return foreign_; }

  // The segment of a run that has one.
  [[nodiscard]] std::string SegmentPathOf(const SeenRun& run) const {
    return SegmentPath(wire::kSegmentPrefix + std::to_string(run.run.pid()) + "-" + run.id +
                       wire::kSegmentSuffix);
  }

  // The facts of every process of the job, oldest first.
  [[nodiscard]] std::vector<RunFacts> FactsOfJob(const std::string& job);
  // Of the last call of FactsOfJob: why what the database has of the job is missing, else ok.
  [[nodiscard]] const Status& facts_status() const { return facts_status_; }
  // The same with every snapshot of parameters that is kept, in `stats_read`, in no order.
  [[nodiscard]] std::vector<RunFacts> FactsWithStatsOfJob(const std::string& job);
  // The newest runs that the database knows, newest start first; `live` and `has_segment` unset.
  [[nodiscard]] std::vector<SeenRun> StoredRuns(int count_max);
  // As the daemon last concluded; empty where the database does not know the job.
  [[nodiscard]] std::vector<Warning> WarningsOfJob(const std::string& job);
  // Grows whenever the database changes; nothing where it cannot be read.
  [[nodiscard]] std::optional<int64_t> ChangeCounter();
  // The steps of a run that the database keeps, by index; empty where it does not know the run.
  [[nodiscard]] std::vector<StepSummary> StepsOfRun(const std::string& id);
  // Its incidents so far, as the daemon last concluded; nothing when the database does not know the
  // job, or cannot be read.
  [[nodiscard]] std::optional<std::vector<Incident>> IncidentsOfJob(const std::string& job);
  // How its command ended, read by a daemon or not yet.
  [[nodiscard]] std::optional<JobExit> ExitOfJob(const std::string& job);

  // The files in the segment directory that say how its commands ended.
  [[nodiscard]] std::vector<std::string> ExitFilesOfJob(const std::string& job) const;

  // The job that `name` means: a run's id, a job's id, or the beginning of one; "" means the newest
  // run. kNotFound, kAmbiguous with the candidates named, or DatabaseStatus() where the database,
  // which may have it, cannot be read.
  [[nodiscard]] Result<std::string> ResolveJob(const std::string& name);

  // Why the database cannot be read and what to do, a sentence; ok when it can, or when there is
  // none yet.
  [[nodiscard]] Status DatabaseStatus();
  [[nodiscard]] const Places& places() const { return places_; }

 private:
  // A segment that is kept open from call to call.
  struct OpenSegment {
    SegmentReader reader;
    uint64_t findings_seen = 0;  // when newest_sites was read
    std::vector<Site> newest_sites = {};
    std::optional<uint64_t> published = {};  // at the last call of HasNewFindings
  };

  void OpenSegments();
  // What no daemon has read yet, the newest last.
  [[nodiscard]] std::vector<JobExit> UnreadExits(const std::string& job) const;
  [[nodiscard]] std::vector<SeenRun> Join(const std::optional<std::string>& job);
  [[nodiscard]] std::vector<SeenRun> RunsInSegments(const std::optional<std::string>& job);
  [[nodiscard]] std::vector<std::string> SegmentNames() const;
  [[nodiscard]] std::string SegmentPath(const std::string& name) const {
    return places_.segment_dir + "/" + name;
  }
  // Opened when first asked for, and again later while there is none yet or it is locked.
  Store* Database();

  Places places_;
  SystemClock clock_;
  std::optional<Store> store_;
  Status store_status_;
  Status facts_status_;
  uint64_t locked_until_ns_ = 0;  // of the clock; until then the database is not asked for again
  std::vector<UnreadableFile> foreign_;
  std::map<std::string, OpenSegment> open_segments_;  // by file name
  size_t segments_known_ = 0;                         // at the last call of HasNewFindings
};

}  // namespace nanwatch
