// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/retention.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "daemon/store/rows.h"
#include "daemon/store/step_thinning.h"
#include "daemon/store/store.h"

namespace nanwatch {
namespace {

constexpr uint64_t kThinnedAtOnce = 1'000;

}  // namespace

// The number of a run's rows after `added` more, counted once and remembered.
Result<int64_t*> Retention::CountAfter(Counts& counts, const char* sql, int64_t run,
                                       int64_t added) {
  const auto known = counts.find(run);
  if (known != counts.end()) {
    known->second += added;
    return &known->second;
  }
  const Result<int64_t> counted = CountRows(database_, sql, run);
  if (!counted.ok()) return counted.status();
  return &(counts[run] = *counted);
}

Status Retention::ThinRecords(int64_t run, int64_t added) {
  Result<int64_t*> count =
      CountAfter(record_counts_, "SELECT COUNT(*) FROM record WHERE run = ?1", run, added);
  if (!count.ok()) return count.status();
  const auto records = static_cast<uint64_t>(**count);
  if (records <= kRecordsPerRunMax) return Status();
  Result<Statement> thin = database_.Prepare(
      "DELETE FROM record WHERE run = ?1 AND ticket IN"
      " (SELECT ticket FROM record WHERE run = ?1 ORDER BY ticket LIMIT ?2 OFFSET ?3)");
  if (!thin.ok()) return thin.status();
  thin->Bind(1, run).BindUnsigned(2, records - kRecordsPerRunMax + kThinnedAtOnce);
  thin->BindUnsigned(3, kFirstRecordsPerRun);
  if (Status thinned = thin->Run(); !thinned.ok()) return thinned;
  const int64_t gone = database_.Changes();
  **count -= gone;
  Result<Statement> note_it =
      database_.Prepare("UPDATE run SET records_thinned = records_thinned + ?2 WHERE key = ?1");
  if (!note_it.ok()) return note_it.status();
  return note_it->Bind(1, run).Bind(2, gone).Run();
}

// They are large, and each belongs to one finding.
Result<int64_t> Retention::ThinTrails(int64_t run) {
  Result<Statement> thin = database_.Prepare(
      "DELETE FROM record WHERE run = ?1 AND kind = ?2 AND ticket IN"
      " (SELECT ticket FROM record WHERE run = ?1 AND kind = ?2 ORDER BY ticket LIMIT -1 OFFSET ?3)"
      " AND ticket NOT IN"
      " (SELECT ticket FROM record WHERE run = ?1 AND kind = ?2 ORDER BY ticket DESC LIMIT ?3)");
  if (!thin.ok()) return thin.status();
  thin->Bind(1, run).Bind(2, static_cast<int>(Record::kTrail)).Bind(3, kTrailsPerRunMax / 2);
  if (Status thinned = thin->Run(); !thinned.ok()) return thinned;
  return database_.Changes();
}

// Of the older three quarters: what is long ago is kept ever more coarsely.
Status Retention::ThinSteps(int64_t run, int64_t added) {
  Result<int64_t*> count =
      CountAfter(step_counts_, "SELECT COUNT(*) FROM step WHERE run = ?1", run, added);
  if (!count.ok()) return count.status();
  while (static_cast<uint64_t>(**count) > kStepsPerRunMax) {
    Result<int64_t> dropped = DropSteps(run, **count * 3 / 4);
    if (!dropped.ok()) return dropped.status();
    if (*dropped == 0) break;  // the count was wrong
    **count -= *dropped;
  }
  return Status();
}

// Of the oldest so many; how many went.
Result<int64_t> Retention::DropSteps(int64_t run, int64_t of_oldest) {
  Result<Statement> read =
      database_.Prepare("SELECT number, body FROM step WHERE run = ?1 ORDER BY number LIMIT ?2");
  if (!read.ok()) return read.status();
  read->Bind(1, run).Bind(2, of_oldest);
  std::vector<int64_t> numbers;
  std::vector<StepSummary> steps;
  for (Result<bool> row = read->Next(); !row.ok() || *row; row = read->Next()) {
    if (!row.ok()) return row.status();
    numbers.push_back(read->Integer(0));
    const std::string_view body = read->Bytes(1);
    // One that makes no sense has no peaks.
    (void)steps.emplace_back().ParseFromArray(body.data(), static_cast<int>(body.size()));
  }
  Result<Statement> drop = database_.Prepare("DELETE FROM step WHERE run = ?1 AND number = ?2");
  if (!drop.ok()) return drop.status();
  const std::vector<size_t> places = StepsToDrop(steps);
  for (const size_t place : places) {
    if (Status done = drop->Bind(1, run).Bind(2, numbers[place]).Run(); !done.ok()) return done;
  }
  return static_cast<int64_t>(places.size());
}

Status Retention::ThinStats(int64_t run) {
  Result<int64_t> count = CountRows(database_, "SELECT COUNT(*) FROM stats WHERE run = ?1", run);
  while (count.ok() && static_cast<uint64_t>(*count) > kStatsPerRunMax) {
    Result<Statement> thin = database_.Prepare(
        "DELETE FROM stats WHERE run = ?1 AND number IN (SELECT number FROM"
        " (SELECT number, ROW_NUMBER() OVER (ORDER BY number) AS place FROM stats WHERE run = ?1)"
        " WHERE place % 2 = 0 AND place <= ?2)");
    if (!thin.ok()) return thin.status();
    thin->Bind(1, run).BindUnsigned(2, static_cast<uint64_t>(*count) - kNewestStatsPerRun);
    if (Status thinned = thin->Run(); !thinned.ok()) return thinned;
    *count -= database_.Changes();
  }
  return count.status();
}

Status Retention::Retire() {
  Result<Transaction> transaction = Transaction::BeginWrite(database_);
  if (!transaction.ok()) return transaction.status();
  Result<int64_t> limit = database_.Ask("PRAGMA max_page_count");
  Result<int64_t> pages = database_.Ask("PRAGMA page_count");
  Result<int64_t> free_pages = database_.Ask("PRAGMA freelist_count");
  if (!limit.ok()) return limit.status();
  if (!pages.ok()) return pages.status();
  if (!free_pages.ok()) return free_pages.status();
  Result<int64_t> runs = database_.Ask("SELECT COUNT(*) FROM run");
  if (!runs.ok()) return runs.status();
  Result<int64_t> ended = database_.Ask("SELECT COUNT(*) FROM run WHERE ended = 1");
  if (!ended.ok()) return ended.status();
  // Nearly full by its own limit: half of the ended runs go, whatever lives beside them.
  const bool tight = *pages - *free_pages > *limit / 10 * 9;
  const int64_t too_many = std::max<int64_t>(0, *runs - kRunsKept);
  const int64_t forgotten = tight ? std::max(too_many, (*ended + 1) / 2) : too_many;
  // Oldest by when the daemon last wrote of them: what a job says of its start decides nothing.
  Result<Statement> forget = database_.Prepare(
      "DELETE FROM run WHERE key IN (SELECT key FROM run WHERE ended = 1"
      " ORDER BY updated_real_ns, key LIMIT ?1)");
  if (!forget.ok()) return forget.status();
  if (Status done = forget->Bind(1, forgotten).Run(); !done.ok()) return done;
  if (database_.Changes() > 0) {
    Forget();  // their keys may be given to others
    for (const char* sweep : {"DELETE FROM incident WHERE job NOT IN (SELECT job FROM run)",
                              "DELETE FROM warning WHERE job NOT IN (SELECT job FROM run)"}) {
      if (Status swept = database_.Execute(sweep); !swept.ok()) return swept;
    }
  }
  // Exits of jobs without a run are of commands that did not use torch.
  Status swept = database_.Execute(
      "DELETE FROM job_exit WHERE job NOT IN (SELECT job FROM run) AND job NOT IN"
      " (SELECT job FROM job_exit ORDER BY ended_real_ns DESC LIMIT 1000)");
  if (!swept.ok()) return swept;
  return transaction->Commit();
}

void Retention::Forget() {
  record_counts_.clear();
  step_counts_.clear();
}

}  // namespace nanwatch
