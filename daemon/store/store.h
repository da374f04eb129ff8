// SPDX-License-Identifier: Apache-2.0
// Everything that is kept: runs, what was read from their segments, what was concluded, how
// commands ended. One SQLite database in WAL mode with one writer, the daemon; tools read it at any
// time. All of SQLite stays behind this header.
//
// Blobs are messages of proto/*.proto; indexed columns stand beside them. A run is named
// by its id (16 hex digits), a job by JobOf (daemon/ingest/run_batch.h).
//
// Resource type, one owner, not thread-safe. After a failed writing call nothing of it was kept,
// and the same call may be repeated later; after kCorrupt the database should be moved aside
// (MoveAside), and where kIo or kInvalid lasts, ExamineDatabase says whether.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/ingest/exit_file.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/store/outbox_options.h"
#include "verdict.pb.h"

namespace nanwatch {

inline constexpr int kRunsKept = 500;  // newest first; older ended runs are forgotten
inline constexpr uint64_t kRecordsPerRunMax = 20'000;  // beyond, the middle is thinned out:
// A job is judged by so many records: each of its runs by at most the same number, what others do
// not use included, and by no fewer than the second figure. Of a run that has more, the first and
// the newest. Bounds what a verdict takes of memory and time.
inline constexpr uint64_t kRecordsPerJobMax = 24'000;
inline constexpr uint64_t kRecordsPerRunJudgedLeast = 500;
inline constexpr uint64_t kFirstRecordsPerRun = 4'000;  // the first and the newest stay
inline constexpr int kTrailsPerRunMax = 64;  // beyond, the first half and the newest stay
inline constexpr uint64_t kStepsPerRunMax =
    4'096;  // beyond, some of the older are dropped, and no peak (step_thinning.h)
// Snapshots of parameters (some 25 KiB each for 200 of them): beyond, every other one is dropped of
// all but the newest.
inline constexpr uint64_t kStatsPerRunMax = 32;
inline constexpr uint64_t kNewestStatsPerRun = 8;
inline constexpr uint64_t kDatabaseBytesMax = uint64_t{2} << 30;

struct RunRow {
  std::string id;
  std::string job;  // JobOf
  Run run;
  RunState state;
  uint64_t updated_real_ns = 0;
};

struct RunFilter {
  std::optional<std::string> job = {};
  bool live_only = false;
  int count_max = kRunsKept;
};

class Store {
 public:
  // Opens, creates or migrates. A database of a newer version gives kUnsupported. One that is
  // damaged gives kCorrupt, or is moved aside and a new one begun; opening_note() then says so.
  enum class WhenDamaged : uint8_t { kMoveAside, kLeave };
  static Result<Store> OpenForWriting(const std::string& path,
                                      WhenDamaged when_damaged = WhenDamaged::kMoveAside);
  // kNotFound when there is none yet; kUnsupported when its version is not this program's.
  static Result<Store> OpenForReading(const std::string& path);

  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  [[nodiscard]] const std::string& path() const;
  // A sentence about what had to be done to open it (moved aside, migrated), or empty.
  [[nodiscard]] const std::string& opening_note() const;

  // From now on what the fleet is to know goes into the outbox too (outbox.h). Gives a sentence for
  // the user, or "". One that is damaged is made anew. Where that fails as well (kCorrupt, kInvalid)
  // it is marked as off, and nothing goes into it. After any other failure the next write opens it,
  // and fails as long as that fails: nothing is written that the outbox does not know.
  [[nodiscard]] Result<std::string> KeepOutbox(uint64_t now_real_ns, OutboxOptions options);
  // None is asked for: where there was one, those who send it are told that nothing follows.
  Status LeaveOutbox(uint64_t now_real_ns);

  // ---- writing
  // One transaction for all: rows that are there already are not written twice. It survives that
  // this process is killed, and a power cut once it is synced: every few seconds, or by Sync.
  Status Commit(const std::vector<RunBatch>& batches, uint64_t now_real_ns);
  // What was committed is on the disk when this returns.
  Status Sync();
  Status ReplaceIncidents(const std::string& job, const std::vector<Incident>& incidents);
  Status ReplaceWarnings(const std::string& job, const std::vector<Warning>& warnings);
  // Keeps it for the job and adds it to the state of the job's run with that pid, now or when it
  // appears.
  Status RecordExit(const JobExit& exit);
  // Forgets the oldest ended runs beyond kRunsKept and beyond the size limit.
  Status Retire();
  // The file may not grow beyond this; kFull then, as from a full disk.
  Status LimitSize(uint64_t bytes_max);
  // Marks runs that nobody can speak for any more (their segment is gone) as ended.
  Status EndRun(const std::string& run_id, uint64_t ended_real_ns);

  // ---- reading
  [[nodiscard]] Result<std::vector<RunRow>> Runs(
      const RunFilter& filter) const;  // newest start first
  [[nodiscard]] Result<RunRow> FindRun(const std::string& run_id) const;
  // The one run whose id begins with `prefix`; kNotFound, or kAmbiguous with the candidates named.
  [[nodiscard]] Result<std::string> ResolveRun(const std::string& prefix) const;
  [[nodiscard]] Result<std::vector<std::string>> RunsOfJob(
      const std::string& job) const;  // oldest first
  [[nodiscard]] Result<RunFacts> Facts(const std::string& run_id) const;
  [[nodiscard]] Result<std::vector<RunFacts>> FactsOfJob(
      const std::string& job) const;  // as RunsOfJob
  [[nodiscard]] Result<std::vector<StepSummary>> Steps(
      const std::string& run_id) const;  // by index
  [[nodiscard]] Result<std::vector<StatsSnapshot>> Stats(
      const std::string& run_id) const;  // by number
  [[nodiscard]] Result<std::vector<Incident>> Incidents(
      const std::string& job) const;  // as they were given
  [[nodiscard]] Result<std::vector<Warning>> Warnings(
      const std::string& job) const;  // as they were given
  // Empty when nothing of the run was watched yet.
  [[nodiscard]] Result<TrainingHistory> TrainingOf(const std::string& run_id) const;
  // nullopt when no exit of the job is known; the last one when there are several.
  [[nodiscard]] Result<std::optional<JobExit>> ExitOfJob(const std::string& job) const;
  [[nodiscard]] Result<std::optional<SegmentCursor>> CursorOf(const std::string& run_id) const;
  [[nodiscard]] Result<bool> HasRecord(const std::string& run_id, uint64_t ticket) const;
  // Grows whenever another connection committed: a cheap question for `tail -f` and `report
  // --watch`.
  [[nodiscard]] Result<int64_t> ChangeCounter() const;

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Whether a database is at fault that has given errors for a while. kUnusable needs proof: it is
// damaged, or refuses any run at all, or a new connection cannot write to it while a new database
// beside it can be written.
enum class DatabaseHealth : uint8_t {
  kUsable,    // a new connection can write to it
  kUnknown,   // others fail as well: the disk, its space, our memory
  kUnusable,  // it alone fails
};
[[nodiscard]] DatabaseHealth ExamineDatabase(const std::string& path);

// Renames the database and its companions to <path>.corrupt-<UTC time>; says where to. Of those
// that were moved aside, the oldest and the newest stay.
[[nodiscard]] Result<std::string> MoveAside(const std::string& path);

}  // namespace nanwatch
