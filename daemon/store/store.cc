#include "daemon/store/store.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "daemon/store/database_file.h"
#include "daemon/store/sqlite.h"

namespace nanwatch {
namespace {

constexpr uint64_t kThinnedAtOnce = 1'000;

// Parses a body. One that cannot be parsed was not written by us: the database is damaged.
template <typename Message>
Status Parse(std::string_view bytes, Message& out) {
  if (out.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return Status();
  return Status(ErrorKind::kCorrupt,
                "database: a row's body is not a " + Message::descriptor()->name());
}

// Every row of a query of one parameter, parsed.
template <typename Message, typename Add>
Status ParseRows(const Database& database, const char* sql, int64_t parameter, Add&& add) {
  Result<Statement> query = database.Prepare(sql);
  if (!query.ok()) return query.status();
  query->Bind(1, parameter);
  for (Result<bool> row = query->Next();; row = query->Next()) {
    if (!row.ok()) return row.status();
    if (!*row) return Status();
    if (Status parsed = Parse(query->Bytes(0), add()); !parsed.ok()) return parsed;
  }
}

void SetExit(RunState& state, const JobExit& exit) {
  state.clear_exit_code();
  state.clear_signal();
  if (exit.exit_code) state.set_exit_code(*exit.exit_code);
  if (exit.signal) state.set_signal(*exit.signal);
}

}  // namespace

struct Store::Impl {
  explicit Impl(OpenedDatabase opened)
      : database(std::move(opened.database)), note(std::move(opened.note)) {}

  // ---- writing, inside a transaction
  Result<int64_t> WriteRun(const RunBatch& batch, uint64_t now_real_ns);
  Status WriteSites(int64_t run, const RunBatch& batch);
  Status WriteRecords(int64_t run, const RunBatch& batch);
  Status WriteReach(int64_t run, const RunBatch& batch);
  Status WriteSteps(int64_t run, const RunBatch& batch);
  Status WriteStats(int64_t run, const RunBatch& batch);
  Status WriteTraining(int64_t run, const RunBatch& batch);
  Status WriteCursor(int64_t run, const SegmentCursor& cursor);
  Status WriteBatch(const RunBatch& batch, uint64_t now_real_ns);
  Status WriteBatches(const std::vector<RunBatch>& batches, uint64_t now_real_ns);
  Result<int64_t> ThinTrails(int64_t run);
  Status ThinRecords(int64_t run, int64_t added);
  Status ThinSteps(int64_t run, int64_t added);
  Result<int64_t*> CountAfter(std::unordered_map<int64_t, int64_t>& counts, const char* sql,
                              int64_t run, int64_t added);
  Status WriteExitToRuns(const JobExit& exit);

  // ---- reading
  Result<int64_t> KeyOf(const std::string& run_id) const;
  Result<std::vector<RunRow>> QueryRuns(Statement query) const;
  template <typename Message>
  Result<std::vector<Message>> BodiesOf(const char* sql, const std::string& run_id) const;
  Result<RunFacts> FactsOf(const std::string& run_id) const;
  Status ReadTraining(int64_t run, TrainingHistory& training) const;
  Result<std::optional<JobExit>> ExitOf(const std::string& job, const Run& run) const;
  Result<int64_t> CountRows(const char* sql, int64_t run) const;

  Database database;
  std::string note;
  // Rows per run, so that they need not be counted at every commit; by key. Forgotten when one
  // fails.
  std::unordered_map<int64_t, int64_t> record_counts;
  std::unordered_map<int64_t, int64_t> step_counts;
};

// ---- writing
// --------------------------------------------------------------------------------------------

Result<int64_t> Store::Impl::WriteRun(const RunBatch& batch, uint64_t now_real_ns) {
  const std::string job = JobOf(batch.run);
  RunState state = batch.state;
  Result<std::optional<JobExit>> exit = ExitOf(job, batch.run);
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

Status Store::Impl::WriteSites(int64_t run, const RunBatch& batch) {
  if (batch.sites.empty()) return Status();
  Result<Statement> write =
      database.Prepare("INSERT OR REPLACE INTO site (run, id, body) VALUES (?1,?2,?3)");
  if (!write.ok()) return write.status();
  for (const Site& site : batch.sites) {
    write->Bind(1, run).Bind(2, site.id()).BindBlob(3, site.SerializeAsString());
    if (Status written = write->Run(); !written.ok()) return written;
  }
  return Status();
}

Status Store::Impl::WriteRecords(int64_t run, const RunBatch& batch) {
  if (batch.records.empty()) return Status();
  Result<Statement> write = database.Prepare(
      "INSERT OR IGNORE INTO record (run, ticket, kind, body) VALUES (?1,?2,?3,?4)");
  if (!write.ok()) return write.status();
  int64_t added = 0;
  bool has_trails = false;
  for (const Record& record : batch.records) {
    has_trails |= record.has_trail();
    write->Bind(1, run).BindUnsigned(2, record.ticket()).Bind(3, record.fact_case());
    write->BindBlob(4, record.SerializeAsString());
    if (Status written = write->Run(); !written.ok()) return written;
    added += database.Changes();
  }
  if (has_trails) {
    const Result<int64_t> gone = ThinTrails(run);
    if (!gone.ok()) return gone.status();
    added -= *gone;
  }
  return ThinRecords(run, added);
}

// They are large, and each belongs to one finding.
Result<int64_t> Store::Impl::ThinTrails(int64_t run) {
  Result<Statement> thin = database.Prepare(
      "DELETE FROM record WHERE run = ?1 AND kind = ?2 AND ticket IN"
      " (SELECT ticket FROM record WHERE run = ?1 AND kind = ?2 ORDER BY ticket LIMIT -1 OFFSET ?3)"
      " AND ticket NOT IN"
      " (SELECT ticket FROM record WHERE run = ?1 AND kind = ?2 ORDER BY ticket DESC LIMIT ?3)");
  if (!thin.ok()) return thin.status();
  thin->Bind(1, run).Bind(2, static_cast<int>(Record::kTrail)).Bind(3, kTrailsPerRunMax / 2);
  if (Status thinned = thin->Run(); !thinned.ok()) return thinned;
  return database.Changes();
}

Status Store::Impl::ThinRecords(int64_t run, int64_t added) {
  Result<int64_t*> count =
      CountAfter(record_counts, "SELECT COUNT(*) FROM record WHERE run = ?1", run, added);
  if (!count.ok()) return count.status();
  const auto records = static_cast<uint64_t>(**count);
  if (records <= kRecordsPerRunMax) return Status();
  Result<Statement> thin = database.Prepare(
      "DELETE FROM record WHERE run = ?1 AND ticket IN"
      " (SELECT ticket FROM record WHERE run = ?1 ORDER BY ticket LIMIT ?2 OFFSET ?3)");
  if (!thin.ok()) return thin.status();
  thin->Bind(1, run).BindUnsigned(2, records - kRecordsPerRunMax + kThinnedAtOnce);
  thin->BindUnsigned(3, kFirstRecordsPerRun);
  if (Status thinned = thin->Run(); !thinned.ok()) return thinned;
  const int64_t gone = database.Changes();
  **count -= gone;
  Result<Statement> note_it =
      database.Prepare("UPDATE run SET records_thinned = records_thinned + ?2 WHERE key = ?1");
  if (!note_it.ok()) return note_it.status();
  return note_it->Bind(1, run).Bind(2, gone).Run();
}

Status Store::Impl::WriteReach(int64_t run, const RunBatch& batch) {
  if (batch.reach.empty()) return Status();
  Result<Statement> write =
      database.Prepare("INSERT OR IGNORE INTO reach (run, reach, body) VALUES (?1,?2,?3)");
  if (!write.ok()) return write.status();
  for (const FirstReachFact& reach : batch.reach) {
    write->Bind(1, run).Bind(2, reach.reach()).BindBlob(3, reach.SerializeAsString());
    if (Status written = write->Run(); !written.ok()) return written;
  }
  return Status();
}

Status Store::Impl::WriteSteps(int64_t run, const RunBatch& batch) {
  if (batch.steps.empty()) return Status();
  Result<Statement> write =
      database.Prepare("INSERT OR IGNORE INTO step (run, number, body) VALUES (?1,?2,?3)");
  if (!write.ok()) return write.status();
  int64_t added = 0;
  for (const StepSummary& step : batch.steps) {
    write->Bind(1, run).BindUnsigned(2, step.index()).BindBlob(3, step.SerializeAsString());
    if (Status written = write->Run(); !written.ok()) return written;
    added += database.Changes();
  }
  return ThinSteps(run, added);
}

// Every other one of the older three quarters: what is long ago is kept ever more coarsely.
Status Store::Impl::ThinSteps(int64_t run, int64_t added) {
  Result<int64_t*> count =
      CountAfter(step_counts, "SELECT COUNT(*) FROM step WHERE run = ?1", run, added);
  if (!count.ok()) return count.status();
  while (static_cast<uint64_t>(**count) > kStepsPerRunMax) {
    Result<Statement> thin = database.Prepare(
        "DELETE FROM step WHERE run = ?1 AND number IN (SELECT number FROM"
        " (SELECT number, ROW_NUMBER() OVER (ORDER BY number) AS place FROM step WHERE run = ?1)"
        " WHERE place % 2 = 0 AND place < ?2)");
    if (!thin.ok()) return thin.status();
    if (Status thinned = thin->Bind(1, run).Bind(2, **count * 3 / 4).Run(); !thinned.ok())
      return thinned;
    **count -= database.Changes();
  }
  return Status();
}

Status Store::Impl::WriteStats(int64_t run, const RunBatch& batch) {
  if (batch.stats.empty()) return Status();
  Result<Statement> write =
      database.Prepare("INSERT OR IGNORE INTO stats (run, number, body) VALUES (?1,?2,?3)");
  if (!write.ok()) return write.status();
  for (const StatsSnapshot& snapshot : batch.stats) {
    write->Bind(1, run).BindUnsigned(2, snapshot.number());
    write->BindBlob(3, snapshot.SerializeAsString());
    if (Status written = write->Run(); !written.ok()) return written;
  }
  Result<int64_t> count = CountRows("SELECT COUNT(*) FROM stats WHERE run = ?1", run);
  while (count.ok() && static_cast<uint64_t>(*count) > kStatsPerRunMax) {
    Result<Statement> thin = database.Prepare(
        "DELETE FROM stats WHERE run = ?1 AND number IN (SELECT number FROM"
        " (SELECT number, ROW_NUMBER() OVER (ORDER BY number) AS place FROM stats WHERE run = ?1)"
        " WHERE place % 2 = 0 AND place <= ?2)");
    if (!thin.ok()) return thin.status();
    thin->Bind(1, run).BindUnsigned(2, static_cast<uint64_t>(*count) - kNewestStatsPerRun);
    if (Status thinned = thin->Run(); !thinned.ok()) return thinned;
    *count -= database.Changes();
  }
  return count.status();
}

// The number of a run's rows after `added` more, counted once and remembered.
Result<int64_t*> Store::Impl::CountAfter(std::unordered_map<int64_t, int64_t>& counts,
                                         const char* sql, int64_t run, int64_t added) {
  const auto known = counts.find(run);
  if (known != counts.end()) {
    known->second += added;
    return &known->second;
  }
  const Result<int64_t> counted = CountRows(sql, run);
  if (!counted.ok()) return counted.status();
  return &(counts[run] = *counted);
}

Status Store::Impl::WriteTraining(int64_t run, const RunBatch& batch) {
  if (!batch.training) return Status();
  Result<Statement> write =
      database.Prepare("INSERT OR REPLACE INTO training (run, body) VALUES (?1,?2)");
  if (!write.ok()) return write.status();
  return write->Bind(1, run).BindBlob(2, batch.training->SerializeAsString()).Run();
}

Status Store::Impl::WriteCursor(int64_t run, const SegmentCursor& cursor) {
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

Status Store::Impl::WriteBatch(const RunBatch& batch, uint64_t now_real_ns) {
  const Result<int64_t> run = WriteRun(batch, now_real_ns);
  if (!run.ok()) return run.status();
  if (Status written = WriteSites(*run, batch); !written.ok()) return written;
  if (Status written = WriteRecords(*run, batch); !written.ok()) return written;
  if (Status written = WriteReach(*run, batch); !written.ok()) return written;
  if (Status written = WriteSteps(*run, batch); !written.ok()) return written;
  if (Status written = WriteStats(*run, batch); !written.ok()) return written;
  if (Status written = WriteTraining(*run, batch); !written.ok()) return written;
  return WriteCursor(*run, batch.cursor);
}

Status Store::Impl::WriteBatches(const std::vector<RunBatch>& batches, uint64_t now_real_ns) {
  Result<Transaction> transaction = Transaction::BeginWrite(database);
  if (!transaction.ok()) return transaction.status();
  for (const RunBatch& batch : batches) {
    if (Status written = WriteBatch(batch, now_real_ns); !written.ok()) return written;
  }
  return transaction->Commit();
}

Status Store::Impl::WriteExitToRuns(const JobExit& exit) {
  Result<Statement> find = database.Prepare(
      "SELECT key, state FROM run WHERE job = ?1 AND (pid = ?2 OR pid_outer = ?2)");
  if (!find.ok()) return find.status();
  find->BindText(1, exit.job).Bind(2, exit.pid);
  std::vector<std::pair<int64_t, RunState>> found;
  for (Result<bool> row = find->Next();; row = find->Next()) {
    if (!row.ok()) return row.status();
    if (!*row) break;
    auto& [key, state] = found.emplace_back(find->Integer(0), RunState());
    if (Status parsed = Parse(find->Bytes(1), state); !parsed.ok()) return parsed;
  }
  Result<Statement> write = database.Prepare("UPDATE run SET state = ?2 WHERE key = ?1");
  if (!write.ok()) return write.status();
  for (auto& [key, state] : found) {
    SetExit(state, exit);
    if (Status written = write->Bind(1, key).BindBlob(2, state.SerializeAsString()).Run();
        !written.ok()) {
      return written;
    }
  }
  return Status();
}

// ---- reading
// --------------------------------------------------------------------------------------------

Result<int64_t> Store::Impl::CountRows(const char* sql, int64_t run) const {
  Result<Statement> count = database.Prepare(sql);
  if (!count.ok()) return count.status();
  count->Bind(1, run);
  const Result<bool> row = count->Next();
  if (!row.ok()) return row.status();
  return count->Integer(0);
}

Result<int64_t> Store::Impl::KeyOf(const std::string& run_id) const {
  Result<Statement> find = database.Prepare("SELECT key FROM run WHERE id = ?1");
  if (!find.ok()) return find.status();
  const Result<bool> row = find->BindText(1, run_id).Next();
  if (!row.ok()) return row.status();
  if (!*row) return Status(ErrorKind::kNotFound, "no run " + run_id + " is known");
  return find->Integer(0);
}

// Columns: id, job, identity, state, updated_real_ns, records_thinned.
Result<std::vector<RunRow>> Store::Impl::QueryRuns(Statement query) const {
  std::vector<RunRow> rows;
  for (Result<bool> more = query.Next();; more = query.Next()) {
    if (!more.ok()) return more.status();
    if (!*more) return rows;
    RunRow& row = rows.emplace_back();
    row.id = query.Text(0);
    row.job = query.Text(1);
    if (Status parsed = Parse(query.Bytes(2), row.run); !parsed.ok()) return parsed;
    if (Status parsed = Parse(query.Bytes(3), row.state); !parsed.ok()) return parsed;
    row.updated_real_ns = query.Unsigned(4);
    row.state.set_records_thinned(query.Unsigned(5));
  }
}

// The bodies that a query of one run, by its key, brings.
template <typename Message>
Result<std::vector<Message>> Store::Impl::BodiesOf(const char* sql,
                                                   const std::string& run_id) const {
  const Result<int64_t> key = KeyOf(run_id);
  if (!key.ok()) return key.status();
  std::vector<Message> bodies;
  Status read =
      ParseRows<Message>(database, sql, *key, [&]() -> Message& { return bodies.emplace_back(); });
  if (!read.ok()) return read;
  return bodies;
}

Result<std::optional<JobExit>> Store::Impl::ExitOf(const std::string& job, const Run& run) const {
  Result<Statement> find = database.Prepare(
      "SELECT pid, exit_code, signal, ended_real_ns FROM job_exit WHERE job = ?1 AND pid IN (?2, "
      "?3)");
  if (!find.ok()) return find.status();
  const Result<bool> row =
      find->BindText(1, job).Bind(2, run.pid()).Bind(3, run.pid_outer()).Next();
  if (!row.ok()) return row.status();
  if (!*row) return std::optional<JobExit>();
  JobExit exit;
  exit.job = job;
  exit.pid = static_cast<int32_t>(find->Integer(0));
  if (!find->IsNull(1)) exit.exit_code = static_cast<int32_t>(find->Integer(1));
  if (!find->IsNull(2)) exit.signal = static_cast<int32_t>(find->Integer(2));
  exit.ended_real_ns = find->Unsigned(3);
  return std::optional<JobExit>(std::move(exit));
}

Status Store::Impl::ReadTraining(int64_t run, TrainingHistory& training) const {
  return ParseRows<TrainingHistory>(database, "SELECT body FROM training WHERE run = ?1", run,
                                    [&]() -> TrainingHistory& { return training; });
}

Result<RunFacts> Store::Impl::FactsOf(const std::string& run_id) const {
  const Result<int64_t> key = KeyOf(run_id);
  if (!key.ok()) return key.status();
  RunFacts facts;
  Result<Statement> find =
      database.Prepare("SELECT identity, state, records_thinned FROM run WHERE key = ?1");
  if (!find.ok()) return find.status();
  const Result<bool> row = find->Bind(1, *key).Next();
  if (!row.ok()) return row.status();
  if (Status parsed = Parse(find->Bytes(0), *facts.mutable_run()); !parsed.ok()) return parsed;
  if (Status parsed = Parse(find->Bytes(1), *facts.mutable_state()); !parsed.ok()) return parsed;
  facts.mutable_state()->set_records_thinned(find->Unsigned(2));
  Status read = ParseRows<Site>(database, "SELECT body FROM site WHERE run = ?1 ORDER BY id", *key,
                                [&]() -> Site& { return *facts.add_sites(); });
  if (!read.ok()) return read;
  read = ParseRows<Record>(database, "SELECT body FROM record WHERE run = ?1 ORDER BY ticket", *key,
                           [&]() -> Record& { return *facts.add_records(); });
  if (!read.ok()) return read;
  read = ParseRows<FirstReachFact>(database, "SELECT body FROM reach WHERE run = ?1 ORDER BY reach",
                                   *key, [&]() -> FirstReachFact& { return *facts.add_reach(); });
  if (!read.ok()) return read;
  read = ReadTraining(*key, *facts.mutable_training());
  if (!read.ok()) return read;
  read = ParseRows<StatsSnapshot>(
      database, "SELECT body FROM stats WHERE run = ?1 ORDER BY number DESC LIMIT 1", *key,
      [&]() -> StatsSnapshot& { return *facts.mutable_stats_stored(); });
  if (!read.ok()) return read;
  const Result<int64_t> steps = CountRows("SELECT COUNT(*) FROM step WHERE run = ?1", *key);
  if (!steps.ok()) return steps.status();
  facts.set_steps(static_cast<uint64_t>(*steps));
  return facts;
}

// ---- Store
// ----------------------------------------------------------------------------------------------

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

Result<Store> Store::OpenForWriting(const std::string& path) {
  Result<OpenedDatabase> opened = OpenDatabaseForWriting(path);
  if (!opened.ok()) return opened.status();
  Store store(std::make_unique<Impl>(*std::move(opened)));
  if (Status limited = store.LimitSize(kDatabaseBytesMax); !limited.ok()) return limited;
  return store;
}

Result<Store> Store::OpenForReading(const std::string& path) {
  Result<OpenedDatabase> opened = OpenDatabaseForReading(path);
  if (!opened.ok()) return opened.status();
  return Store(std::make_unique<Impl>(*std::move(opened)));
}

const std::string& Store::opening_note() const { return impl_->note; }

Status Store::Commit(const std::vector<RunBatch>& batches, uint64_t now_real_ns) {
  Status status = impl_->WriteBatches(batches, now_real_ns);
  if (!status.ok()) {
    impl_->record_counts.clear();
    impl_->step_counts.clear();
  }
  return status;
}

Status Store::ReplaceIncidents(const std::string& job, const std::vector<Incident>& incidents) {
  const Database& database = impl_->database;
  Result<Transaction> transaction = Transaction::BeginWrite(database);
  if (!transaction.ok()) return transaction.status();
  Result<Statement> clear = database.Prepare("DELETE FROM incident WHERE job = ?1");
  if (!clear.ok()) return clear.status();
  if (Status cleared = clear->BindText(1, job).Run(); !cleared.ok()) return cleared;
  Result<Statement> write = database.Prepare(
      "INSERT INTO incident (job, position, run, rank, severity, op, layer, step, body)"
      " VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9)");
  if (!write.ok()) return write.status();
  for (size_t i = 0; i < incidents.size(); ++i) {
    const Finding& origin = incidents[i].origin();
    write->BindText(1, job)
        .Bind(2, static_cast<int64_t>(i))
        .BindText(3, origin.run())
        .Bind(4, origin.rank());
    write->BindText(5, incidents[i].severity())
        .BindText(6, origin.op())
        .BindText(7, origin.layer());
    write->Bind(8, origin.step()).BindBlob(9, incidents[i].SerializeAsString());
    if (Status written = write->Run(); !written.ok()) return written;
  }
  return transaction->Commit();
}

Status Store::ReplaceWarnings(const std::string& job, const std::vector<Warning>& warnings) {
  const Database& database = impl_->database;
  Result<Transaction> transaction = Transaction::BeginWrite(database);
  if (!transaction.ok()) return transaction.status();
  Result<Statement> clear = database.Prepare("DELETE FROM warning WHERE job = ?1");
  if (!clear.ok()) return clear.status();
  if (Status cleared = clear->BindText(1, job).Run(); !cleared.ok()) return cleared;
  Result<Statement> write = database.Prepare(
      "INSERT INTO warning (job, position, run, rank, severity, id, step, body)"
      " VALUES (?1,?2,?3,?4,?5,?6,?7,?8)");
  if (!write.ok()) return write.status();
  for (size_t i = 0; i < warnings.size(); ++i) {
    const Warning& warning = warnings[i];
    write->BindText(1, job).Bind(2, static_cast<int64_t>(i)).BindText(3, warning.run());
    write->Bind(4, warning.rank()).BindText(5, warning.severity()).BindText(6, warning.id());
    write->Bind(7, warning.step()).BindBlob(8, warning.SerializeAsString());
    if (Status written = write->Run(); !written.ok()) return written;
  }
  return transaction->Commit();
}

Status Store::RecordExit(const JobExit& exit) {
  Result<Transaction> transaction = Transaction::BeginWrite(impl_->database);
  if (!transaction.ok()) return transaction.status();
  Result<Statement> write = impl_->database.Prepare(
      "INSERT OR REPLACE INTO job_exit (job, pid, exit_code, signal, ended_real_ns) VALUES "
      "(?1,?2,?3,?4,?5)");
  if (!write.ok()) return write.status();
  write->BindText(1, exit.job)
      .Bind(2, exit.pid)
      .BindNull(3)
      .BindNull(4)
      .BindUnsigned(5, exit.ended_real_ns);
  if (exit.exit_code) write->Bind(3, *exit.exit_code);
  if (exit.signal) write->Bind(4, *exit.signal);
  if (Status written = write->Run(); !written.ok()) return written;
  if (Status written = impl_->WriteExitToRuns(exit); !written.ok()) return written;
  return transaction->Commit();
}

Status Store::Retire() {
  const Database& database = impl_->database;
  Result<Transaction> transaction = Transaction::BeginWrite(database);
  if (!transaction.ok()) return transaction.status();
  Result<int64_t> limit = database.Ask("PRAGMA max_page_count");
  Result<int64_t> pages = database.Ask("PRAGMA page_count");
  Result<int64_t> free_pages = database.Ask("PRAGMA freelist_count");
  if (!limit.ok() || !pages.ok() || !free_pages.ok())
    return limit.ok() ? pages.status() : limit.status();
  // Nearly full by its own limit: half of what has ended makes room.
  const bool tight = *pages - *free_pages > *limit / 10 * 9;
  Result<Statement> forget = database.Prepare(
      "DELETE FROM run WHERE ended = 1 AND key IN (SELECT key FROM run ORDER BY started_real_ns "
      "DESC, key DESC"
      " LIMIT -1 OFFSET ?1)");
  if (!forget.ok()) return forget.status();
  Result<int64_t> runs = database.Ask("SELECT COUNT(*) FROM run");
  if (!runs.ok()) return runs.status();
  const int64_t kept = tight ? std::min<int64_t>(kRunsKept, *runs / 2) : kRunsKept;
  if (Status forgotten = forget->Bind(1, kept).Run(); !forgotten.ok()) return forgotten;
  if (database.Changes() > 0) {
    impl_->record_counts.clear();  // their keys may be given to others
    impl_->step_counts.clear();
    for (const char* sweep : {"DELETE FROM incident WHERE job NOT IN (SELECT job FROM run)",
                              "DELETE FROM warning WHERE job NOT IN (SELECT job FROM run)"}) {
      if (Status swept = database.Execute(sweep); !swept.ok()) return swept;
    }
  }
  // Exits of jobs without a run are of commands that did not use torch.
  Status swept = database.Execute(
      "DELETE FROM job_exit WHERE job NOT IN (SELECT job FROM run) AND job NOT IN"
      " (SELECT job FROM job_exit ORDER BY ended_real_ns DESC LIMIT 1000)");
  if (!swept.ok()) return swept;
  return transaction->Commit();
}

Status Store::LimitSize(uint64_t bytes_max) {
  const Result<int64_t> page_bytes = impl_->database.Ask("PRAGMA page_size");
  if (!page_bytes.ok()) return page_bytes.status();
  const uint64_t pages = std::max<uint64_t>(1, bytes_max / static_cast<uint64_t>(*page_bytes));
  const std::string pragma = "PRAGMA max_page_count = " + std::to_string(pages);
  const Result<int64_t> set = impl_->database.Ask(pragma.c_str());
  return set.ok() ? Status() : set.status();
}

Status Store::EndRun(const std::string& run_id, uint64_t ended_real_ns) {
  Result<Transaction> transaction = Transaction::BeginWrite(impl_->database);
  if (!transaction.ok()) return transaction.status();
  Result<RunRow> row = FindRun(run_id);
  if (!row.ok()) return row.status();
  row->state.set_ended(true);
  row->state.set_ended_real_ns(ended_real_ns);
  Result<Statement> write =
      impl_->database.Prepare("UPDATE run SET ended = 1, state = ?2 WHERE id = ?1");
  if (!write.ok()) return write.status();
  write->BindText(1, run_id).BindBlob(2, row->state.SerializeAsString());
  if (Status written = write->Run(); !written.ok()) return written;
  return transaction->Commit();
}

Result<std::vector<RunRow>> Store::Runs(const RunFilter& filter) const {
  Result<Statement> query = impl_->database.Prepare(
      "SELECT id, job, identity, state, updated_real_ns, records_thinned FROM run"
      " WHERE (?1 IS NULL OR job = ?1) AND (?2 = 0 OR ended = 0)"
      " ORDER BY started_real_ns DESC, key DESC LIMIT ?3");
  if (!query.ok()) return query.status();
  query->BindNull(1).Bind(2, filter.live_only ? 1 : 0).Bind(3, filter.count_max);
  if (filter.job) query->BindText(1, *filter.job);
  return impl_->QueryRuns(*std::move(query));
}

Result<RunRow> Store::FindRun(const std::string& run_id) const {
  Result<Statement> query = impl_->database.Prepare(
      "SELECT id, job, identity, state, updated_real_ns, records_thinned FROM run WHERE id = ?1");
  if (!query.ok()) return query.status();
  query->BindText(1, run_id);
  Result<std::vector<RunRow>> rows = impl_->QueryRuns(*std::move(query));
  if (!rows.ok()) return rows.status();
  if (rows->empty()) return Status(ErrorKind::kNotFound, "no run " + run_id + " is known");
  return std::move(rows->front());
}

Result<std::string> Store::ResolveRun(const std::string& prefix) const {
  const bool is_hex =
      !prefix.empty() && prefix.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_hex) {
    return Status(ErrorKind::kInvalid,
                  "'" + prefix + "' is no run id: run ids are made of 0-9 and a-f");
  }
  Result<Statement> query = impl_->database.Prepare(
      "SELECT id FROM run WHERE id >= ?1 AND id < ?1 || 'g' ORDER BY id LIMIT 6");
  if (!query.ok()) return query.status();
  query->BindText(1, prefix);
  std::vector<std::string> found;
  for (Result<bool> row = query->Next();; row = query->Next()) {
    if (!row.ok()) return row.status();
    if (!*row) break;
    found.push_back(query->Text(0));
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return Status(ErrorKind::kNotFound,
                  "no run whose id begins with '" + prefix + "' is known; nanwatch ps lists them");
  }
  std::string message = "'" + prefix + "' fits several runs:";
  for (size_t i = 0; i < std::min<size_t>(found.size(), 5); ++i) message += " " + found[i];
  if (found.size() > 5) message += " ...";
  return Status(ErrorKind::kAmbiguous, message);
}

Result<std::vector<std::string>> Store::RunsOfJob(const std::string& job) const {
  Result<Statement> query =
      impl_->database.Prepare("SELECT id FROM run WHERE job = ?1 ORDER BY started_real_ns, key");
  if (!query.ok()) return query.status();
  query->BindText(1, job);
  std::vector<std::string> ids;
  for (Result<bool> row = query->Next();; row = query->Next()) {
    if (!row.ok()) return row.status();
    if (!*row) return ids;
    ids.push_back(query->Text(0));
  }
}

Result<RunFacts> Store::Facts(const std::string& run_id) const {
  Result<Transaction> snapshot = Transaction::BeginRead(impl_->database);
  if (!snapshot.ok()) return snapshot.status();
  return impl_->FactsOf(run_id);
}

Result<std::vector<RunFacts>> Store::FactsOfJob(const std::string& job) const {
  Result<Transaction> snapshot = Transaction::BeginRead(impl_->database);
  if (!snapshot.ok()) return snapshot.status();
  const Result<std::vector<std::string>> ids = RunsOfJob(job);
  if (!ids.ok()) return ids.status();
  std::vector<RunFacts> all;
  for (const std::string& id : *ids) {
    Result<RunFacts> facts = impl_->FactsOf(id);
    if (!facts.ok()) return facts.status();
    all.push_back(*std::move(facts));
  }
  return all;
}

Result<std::vector<StepSummary>> Store::Steps(const std::string& run_id) const {
  return impl_->BodiesOf<StepSummary>("SELECT body FROM step WHERE run = ?1 ORDER BY number",
                                      run_id);
}

Result<std::vector<StatsSnapshot>> Store::Stats(const std::string& run_id) const {
  return impl_->BodiesOf<StatsSnapshot>("SELECT body FROM stats WHERE run = ?1 ORDER BY number",
                                        run_id);
}

Result<std::vector<Incident>> Store::Incidents(const std::string& job) const {
  Result<Statement> query =
      impl_->database.Prepare("SELECT body FROM incident WHERE job = ?1 ORDER BY position");
  if (!query.ok()) return query.status();
  query->BindText(1, job);
  std::vector<Incident> incidents;
  for (Result<bool> row = query->Next();; row = query->Next()) {
    if (!row.ok()) return row.status();
    if (!*row) return incidents;
    if (Status parsed = Parse(query->Bytes(0), incidents.emplace_back()); !parsed.ok())
      return parsed;
  }
}

Result<std::vector<Warning>> Store::Warnings(const std::string& job) const {
  Result<Statement> query =
      impl_->database.Prepare("SELECT body FROM warning WHERE job = ?1 ORDER BY position");
  if (!query.ok()) return query.status();
  query->BindText(1, job);
  std::vector<Warning> warnings;
  for (Result<bool> row = query->Next();; row = query->Next()) {
    if (!row.ok()) return row.status();
    if (!*row) return warnings;
    if (Status parsed = Parse(query->Bytes(0), warnings.emplace_back()); !parsed.ok())
      return parsed;
  }
}

Result<TrainingHistory> Store::TrainingOf(const std::string& run_id) const {
  const Result<int64_t> key = impl_->KeyOf(run_id);
  if (!key.ok()) return key.status();
  TrainingHistory training;
  if (Status read = impl_->ReadTraining(*key, training); !read.ok()) return read;
  return training;
}

Result<std::optional<JobExit>> Store::ExitOfJob(const std::string& job) const {
  Result<Statement> query = impl_->database.Prepare(
      "SELECT pid, exit_code, signal, ended_real_ns FROM job_exit WHERE job = ?1"
      " ORDER BY ended_real_ns DESC LIMIT 1");
  if (!query.ok()) return query.status();
  const Result<bool> row = query->BindText(1, job).Next();
  if (!row.ok()) return row.status();
  if (!*row) return std::optional<JobExit>();
  JobExit exit;
  exit.job = job;
  exit.pid = static_cast<int32_t>(query->Integer(0));
  if (!query->IsNull(1)) exit.exit_code = static_cast<int32_t>(query->Integer(1));
  if (!query->IsNull(2)) exit.signal = static_cast<int32_t>(query->Integer(2));
  exit.ended_real_ns = query->Unsigned(3);
  return std::optional<JobExit>(std::move(exit));
}

Result<std::optional<SegmentCursor>> Store::CursorOf(const std::string& run_id) const {
  Result<Statement> query = impl_->database.Prepare(
      "SELECT ring, steps, holes, malformed, steps_lost, stats, stats_lost FROM cursor WHERE run ="
      " (SELECT key FROM run WHERE id = ?1)");
  if (!query.ok()) return query.status();
  const Result<bool> row = query->BindText(1, run_id).Next();
  if (!row.ok()) return row.status();
  if (!*row) return std::optional<SegmentCursor>();
  return std::optional<SegmentCursor>(SegmentCursor{.ring = query->Unsigned(0),
                                                    .steps = query->Unsigned(1),
                                                    .holes = query->Unsigned(2),
                                                    .malformed = query->Unsigned(3),
                                                    .steps_lost = query->Unsigned(4),
                                                    .stats = query->Unsigned(5),
                                                    .stats_lost = query->Unsigned(6)});
}

Result<int64_t> Store::ChangeCounter() const { return impl_->database.Ask("PRAGMA data_version"); }

}  // namespace nanwatch
