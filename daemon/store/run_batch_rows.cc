// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/run_batch_rows.h"

#include <optional>
#include <string>

#include "daemon/store/former_launches.h"
#include "daemon/store/job_exits.h"
#include "daemon/store/run_facts.h"
#include "daemon/store/run_rows.h"

namespace nanwatch {
namespace {

// A run that is new may begin a launch whose id another had before.
Status MakeRoomForLaunch(const Database& database, const RunBatch& batch, const std::string& job) {
  if (!IsRepeatingJob(job)) return Status();
  const Result<int64_t> known = KeyOfRun(database, batch.run_id);
  if (known.ok()) return Status();
  if (known.status().kind() != ErrorKind::kNotFound) return known.status();
  return SetAsideFormerLaunch(database, job, batch.run.started_real_ns());
}

Result<int64_t> WriteRun(const Database& database, const RunBatch& batch, uint64_t now_real_ns) {
  const std::string job = JobOf(batch.run);
  if (Status made = MakeRoomForLaunch(database, batch, job); !made.ok()) return made;
  RunState state = batch.state;
  Result<std::optional<JobExit>> exit = FindExit(database, job, batch.run);
  if (!exit.ok()) return exit.status();
  if (exit->has_value()) SetExit(state, **exit);

  Result<Statement> write = database.Prepare(
      "INSERT INTO run (id, job, rank, attempt, host, pid, pid_outer, program, started_real_ns,"
      " updated_real_ns, ended, identity, state) VALUES "
      "(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)"
      " ON CONFLICT (id) DO UPDATE SET updated_real_ns = ?10, ended = ?11, identity = ?12, state = "
      "?13"
      " RETURNING key");
  if (!write.ok()) return write.status();
  write->BindText(1, batch.run_id)
      .BindText(2, job)
      .Bind(3, batch.run.rank())
      .Bind(4, batch.run.attempt());
  write->BindText(5, batch.run.host()).Bind(6, batch.run.pid()).Bind(7, batch.run.pid_outer());
  write->BindText(8, batch.run.program()).BindUnsigned(9, batch.run.started_real_ns());
  write->BindUnsigned(10, now_real_ns).Bind(11, state.ended() ? 1 : 0);
  write->BindBlob(12, batch.run.SerializeAsString()).BindBlob(13, state.SerializeAsString());
  const Result<bool> row = write->Next();
  if (!row.ok()) return row.status();
  const int64_t key = write->Integer(0);
  if (Status finished = write->Run(); !finished.ok()) return finished;
  return key;
}

// Prepares `sql`, whose first parameter is the run, and executes it once for each of `rows`:
// bind(statement, row) binds the others. The number of rows that it added.
template <typename Rows, typename Bind>
Result<int64_t> WriteRows(const Database& database, const char* sql, int64_t run, const Rows& rows,
                          const Bind& bind) {
  if (rows.empty()) return 0;
  Result<Statement> write = database.Prepare(sql);
  if (!write.ok()) return write.status();
  int64_t added = 0;
  for (const auto& row : rows) {
    bind(write->Bind(1, run), row);
    if (Status written = write->Run(); !written.ok()) return written;
    added += database.Changes();
  }
  return added;
}

Status WriteSites(const Database& database, int64_t run, const RunBatch& batch) {
  return WriteRows(database, "INSERT OR REPLACE INTO site (run, id, body) VALUES (?1,?2,?3)", run,
                   batch.sites,
                   [](Statement& write, const Site& site) {
                     write.Bind(2, site.id()).BindBlob(3, site.SerializeAsString());
                   })
      .status();
}

Status WriteRecords(const Database& database, Retention& retention, int64_t run,
                    const RunBatch& batch) {
  bool has_trails = false;
  Result<int64_t> added = WriteRows(
      database, "INSERT OR IGNORE INTO record (run, ticket, kind, body) VALUES (?1,?2,?3,?4)", run,
      batch.records, [&has_trails](Statement& write, const Record& record) {
        has_trails |= record.has_trail();
        write.BindUnsigned(2, record.ticket()).Bind(3, record.fact_case());
        write.BindBlob(4, record.SerializeAsString());
      });
  if (!added.ok() || batch.records.empty()) return added.status();
  if (has_trails) {
    const Result<int64_t> gone = retention.ThinTrails(run);
    if (!gone.ok()) return gone.status();
    *added -= *gone;
  }
  return retention.ThinRecords(run, *added);
}

Status WriteReach(const Database& database, int64_t run, const RunBatch& batch) {
  return WriteRows(database, "INSERT OR IGNORE INTO reach (run, reach, body) VALUES (?1,?2,?3)",
                   run, batch.reach,
                   [](Statement& write, const FirstReachFact& reach) {
                     write.Bind(2, reach.reach()).BindBlob(3, reach.SerializeAsString());
                   })
      .status();
}

Status WriteSteps(const Database& database, Retention& retention, int64_t run,
                  const RunBatch& batch) {
  const Result<int64_t> added =
      WriteRows(database, "INSERT OR IGNORE INTO step (run, number, body) VALUES (?1,?2,?3)", run,
                batch.steps, [](Statement& write, const StepSummary& step) {
                  write.BindUnsigned(2, step.index()).BindBlob(3, step.SerializeAsString());
                });
  if (!added.ok() || batch.steps.empty()) return added.status();
  return retention.ThinSteps(run, *added);
}

Status WriteStats(const Database& database, Retention& retention, int64_t run,
                  const RunBatch& batch) {
  const Result<int64_t> added = WriteRows(
      database, "INSERT OR IGNORE INTO stats (run, number, body) VALUES (?1,?2,?3)", run,
      batch.stats, [](Statement& write, const StatsSnapshot& snapshot) {
        write.BindUnsigned(2, snapshot.number()).BindBlob(3, snapshot.SerializeAsString());
      });
  if (!added.ok() || batch.stats.empty()) return added.status();
  return retention.ThinStats(run);
}

Status WriteTraining(const Database& database, int64_t run, const RunBatch& batch) {
  if (!batch.training) return Status();
  Result<Statement> write =
      database.Prepare("INSERT OR REPLACE INTO training (run, body) VALUES (?1,?2)");
  if (!write.ok()) return write.status();
  return write->Bind(1, run).BindBlob(2, batch.training->SerializeAsString()).Run();
}

Status WriteCursor(const Database& database, int64_t run, const SegmentCursor& cursor) {
  Result<Statement> write = database.Prepare(
      "INSERT OR REPLACE INTO cursor (run, ring, steps, holes, malformed, steps_lost, stats,"
      " stats_lost) VALUES (?1,?2,?3,?4,?5,?6,?7,?8)");
  if (!write.ok()) return write.status();
  write->Bind(1, run).BindUnsigned(2, cursor.ring).BindUnsigned(3, cursor.steps);
  write->BindUnsigned(4, cursor.holes)
      .BindUnsigned(5, cursor.malformed)
      .BindUnsigned(6, cursor.steps_lost);
  write->BindUnsigned(7, cursor.stats).BindUnsigned(8, cursor.stats_lost);
  return write->Run();
}

Status WriteBatch(const Database& database, Retention& retention, Outbox* outbox,
                  const RunBatch& batch, uint64_t now_real_ns) {
  const Result<int64_t> run = WriteRun(database, batch, now_real_ns);
  if (!run.ok()) return run.status();
  if (Status written = WriteSites(database, *run, batch); !written.ok()) return written;
  if (Status written = WriteRecords(database, retention, *run, batch); !written.ok())
    return written;
  if (Status written = WriteReach(database, *run, batch); !written.ok()) return written;
  if (Status written = WriteSteps(database, retention, *run, batch); !written.ok()) return written;
  if (Status written = WriteStats(database, retention, *run, batch); !written.ok()) return written;
  if (Status written = WriteTraining(database, *run, batch); !written.ok()) return written;
  if (outbox != nullptr) {
    if (Status added = outbox->AddBatch(*run, batch, now_real_ns); !added.ok()) return added;
  }
  return WriteCursor(database, *run, batch.cursor);
}

}  // namespace

Status WriteBatches(const Database& database, Retention& retention, Outbox* outbox,
                    const std::vector<RunBatch>& batches, uint64_t now_real_ns) {
  Result<Transaction> transaction = Transaction::BeginWrite(database);
  if (!transaction.ok()) return transaction.status();
  for (const RunBatch& batch : batches) {
    if (Status written = WriteBatch(database, retention, outbox, batch, now_real_ns); !written.ok())
      return written;
  }
  return transaction->Commit();
}

Status ProveTables(const Database& database) {
  RunBatch probe;
  probe.run_id = "probe";
  probe.sites.emplace_back();
  probe.records.emplace_back();
  probe.reach.emplace_back();
  probe.steps.emplace_back();
  probe.stats.emplace_back();
  probe.training.emplace();
  Retention retention(database);
  const Result<Transaction> transaction = Transaction::BeginWrite(database);
  if (!transaction.ok()) return transaction.status();
  Status written = WriteBatch(database, retention, /*outbox=*/nullptr, probe, /*now_real_ns=*/0);
  return written.ok() ? ReadFacts(database, probe.run_id, /*records_max=*/1).status() : written;
}

}  // namespace nanwatch
