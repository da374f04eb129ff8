// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/store.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/store/conclusions.h"
#include "daemon/store/database_file.h"
#include "daemon/store/job_exits.h"
#include "daemon/store/outbox.h"
#include "daemon/store/outbox_marker.h"
#include "daemon/store/outbox_options.h"
#include "daemon/store/retention.h"
#include "daemon/store/rows.h"
#include "daemon/store/run_batch_rows.h"
#include "daemon/store/run_facts.h"
#include "daemon/store/run_rows.h"
#include "daemon/store/sqlite.h"

namespace nanwatch {
namespace {

// A power cut costs what was committed since. The segments are in memory, so they are gone, too.
constexpr uint64_t kSyncedEveryNs = 5'000'000'000;

// An outbox that was asked for, and could not be opened yet.
struct OutboxToOpen {
  uint64_t now_real_ns = 0;
  OutboxOptions options;
};

}  // namespace

struct Store::Impl {
  Impl(std::string the_path, OpenedDatabase opened)
      : path(std::move(the_path)),
        database(std::move(opened.database)),
        note(std::move(opened.note)) {}

  // The bodies that a query of one run, by its key, brings.
  template <typename Message>
  Result<std::vector<Message>> BodiesOf(const char* sql, const std::string& run_id) const {
    const Result<int64_t> key = KeyOfRun(database, run_id);
    if (!key.ok()) return key.status();
    return ReadBodies<Message>(database, sql, *key);
  }

  // The state of a run, in a transaction that changed it.
  Status SendState(const std::string& run_id, uint64_t now_real_ns) const {
    if (outbox == nullptr) return Status();
    const Result<int64_t> key = KeyOfRun(database, run_id);
    return key.ok() ? outbox->AddState(*key, now_real_ns) : key.status();
  }

  // To be returned for a transaction that may have put rows into the outbox.
  Status Ended(Status status) const {
    if (!status.ok() && outbox != nullptr) outbox->Forget();
    return status;
  }

  Status RecordExit(const JobExit& exit) const;
  Status EndRun(const std::string& run_id, uint64_t ended_real_ns) const;
  // Before each write.
  Status ReadyOutbox() { return to_open ? OpenOutbox().status() : Status(); }
  Result<std::string> OpenOutbox();

  std::string path;
  Database database;
  std::string note;
  uint64_t synced_real_ns = 0;
  Retention retention{database};
  std::unique_ptr<Outbox> outbox;  // null: none was asked for, or it is off
  std::optional<OutboxToOpen> to_open;
};

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

Result<Store> Store::OpenForWriting(const std::string& path, WhenDamaged when_damaged) {
  Result<OpenedDatabase> opened = OpenDatabaseForWriting(path, when_damaged);
  if (!opened.ok()) return opened.status();
  Store store(std::make_unique<Impl>(path, *std::move(opened)));
  if (Status limited = store.LimitSize(kDatabaseBytesMax); !limited.ok()) return limited;
  return store;
}

Result<Store> Store::OpenForReading(const std::string& path) {
  Result<OpenedDatabase> opened = OpenDatabaseForReading(path);
  if (!opened.ok()) return opened.status();
  return Store(std::make_unique<Impl>(path, *std::move(opened)));
}

const std::string& Store::path() const { return impl_->path; }
const std::string& Store::opening_note() const { return impl_->note; }

Result<std::string> Store::KeepOutbox(uint64_t now_real_ns, OutboxOptions options) {
  impl_->to_open = OutboxToOpen{.now_real_ns = now_real_ns, .options = std::move(options)};
  return impl_->OpenOutbox();
}

Result<std::string> Store::Impl::OpenOutbox() {
  std::string kept_note;
  const auto open = [&] {
    return Outbox::Open(database, path, to_open->now_real_ns, to_open->options, kept_note);
  };
  Result<Outbox> opened = open();
  if (!opened.ok() && IsOutboxDamage(opened.status())) {
    Status marked = MarkOutboxDamaged(database, to_open->now_real_ns, opened.status().message());
    if (!marked.ok() && !IsOutboxDamage(marked)) return marked;
    opened = open();
  }
  if (!opened.ok() && !IsOutboxDamage(opened.status())) return opened.status();
  to_open.reset();
  if (!opened.ok()) return opened.status();
  outbox = std::make_unique<Outbox>(*std::move(opened));
  return kept_note;
}

Status Store::LeaveOutbox(uint64_t now_real_ns) {
  const Result<std::optional<OutboxMarker>> marker = ReadOutboxMarker(impl_->database);
  if (!marker.ok()) return marker.status();
  const Result<int64_t> tables =
      impl_->database.Ask("SELECT COUNT(*) FROM sqlite_master WHERE name = 'outbox_self'");
  if (!tables.ok()) return tables.status();
  if (*tables == 0 || (*marker && !(*marker)->is_kept)) return Status();
  Result<Transaction> transaction = Transaction::BeginWrite(impl_->database);
  if (!transaction.ok()) return transaction.status();
  const OutboxMarker off = {.is_kept = false, .since_real_ns = now_real_ns};
  if (Status written = WriteOutboxMarker(impl_->database, off); !written.ok()) return written;
  return transaction->Commit();
}

// ---- writing

Status Store::Commit(const std::vector<RunBatch>& batches, uint64_t now_real_ns) {
  if (Status ready = impl_->ReadyOutbox(); !ready.ok()) return ready;
  Status status =
      WriteBatches(impl_->database, impl_->retention, impl_->outbox.get(), batches, now_real_ns);
  if (!status.ok()) impl_->retention.Forget();
  status = impl_->Ended(std::move(status));
  if (impl_->synced_real_ns == 0) impl_->synced_real_ns = now_real_ns;
  // The clock may be set back.
  const bool due =
      now_real_ns < impl_->synced_real_ns || now_real_ns - impl_->synced_real_ns >= kSyncedEveryNs;
  if (!status.ok() || !due) return status;
  impl_->synced_real_ns = now_real_ns;
  return Sync();
}

// A commit with FULL syncs the whole log. It has to write something: the version that is there.
Status Store::Sync() {
  const Database& database = impl_->database;
  const Result<int64_t> version = database.Ask("PRAGMA user_version");
  if (!version.ok()) return version.status();
  if (Status set = database.Execute("PRAGMA synchronous = FULL"); !set.ok()) return set;
  const std::string same = "PRAGMA user_version = " + std::to_string(*version);
  Status synced = database.Execute(same.c_str());
  Status reset = database.Execute("PRAGMA synchronous = NORMAL");
  return synced.ok() ? reset : synced;
}

Status Store::ReplaceIncidents(const std::string& job, const std::vector<Incident>& incidents) {
  if (Status ready = impl_->ReadyOutbox(); !ready.ok()) return ready;
  return impl_->Ended(
      nanwatch::ReplaceIncidents(impl_->database, impl_->outbox.get(), job, incidents));
}

Status Store::ReplaceWarnings(const std::string& job, const std::vector<Warning>& warnings) {
  if (Status ready = impl_->ReadyOutbox(); !ready.ok()) return ready;
  return impl_->Ended(
      nanwatch::ReplaceWarnings(impl_->database, impl_->outbox.get(), job, warnings));
}

Status Store::RecordExit(const JobExit& exit) {
  if (Status ready = impl_->ReadyOutbox(); !ready.ok()) return ready;
  return impl_->Ended(impl_->RecordExit(exit));
}

Status Store::Impl::RecordExit(const JobExit& exit) const {
  Result<Transaction> transaction = Transaction::BeginWrite(database);
  if (!transaction.ok()) return transaction.status();
  if (Status written = WriteExit(database, exit); !written.ok()) return written;
  if (outbox != nullptr) {
    const Result<std::vector<std::string>> runs = nanwatch::RunsOfJob(database, exit.job);
    if (!runs.ok()) return runs.status();
    for (const std::string& run : *runs) {
      if (Status sent = SendState(run, exit.ended_real_ns); !sent.ok()) return sent;
    }
  }
  return transaction->Commit();
}

Status Store::Retire() { return impl_->retention.Retire(); }

Status Store::LimitSize(uint64_t bytes_max) {
  const Result<int64_t> page_bytes = impl_->database.Ask("PRAGMA page_size");
  if (!page_bytes.ok()) return page_bytes.status();
  const uint64_t pages = std::max<uint64_t>(1, bytes_max / static_cast<uint64_t>(*page_bytes));
  const std::string pragma = "PRAGMA max_page_count = " + std::to_string(pages);
  const Result<int64_t> set = impl_->database.Ask(pragma.c_str());
  return set.ok() ? Status() : set.status();
}

Status Store::EndRun(const std::string& run_id, uint64_t ended_real_ns) {
  if (Status ready = impl_->ReadyOutbox(); !ready.ok()) return ready;
  return impl_->Ended(impl_->EndRun(run_id, ended_real_ns));
}

Status Store::Impl::EndRun(const std::string& run_id, uint64_t ended_real_ns) const {
  Result<Transaction> transaction = Transaction::BeginWrite(database);
  if (!transaction.ok()) return transaction.status();
  Result<RunRow> row = ReadRun(database, run_id);
  if (!row.ok()) return row.status();
  row->state.set_ended(true);
  row->state.set_ended_real_ns(ended_real_ns);
  Result<Statement> write = database.Prepare("UPDATE run SET ended = 1, state = ?2 WHERE id = ?1");
  if (!write.ok()) return write.status();
  write->BindText(1, run_id).BindBlob(2, row->state.SerializeAsString());
  if (Status written = write->Run(); !written.ok()) return written;
  if (Status sent = SendState(run_id, ended_real_ns); !sent.ok()) return sent;
  return transaction->Commit();
}

// ---- reading

Result<std::vector<RunRow>> Store::Runs(const RunFilter& filter) const {
  return ReadRuns(impl_->database, filter);
}

Result<RunRow> Store::FindRun(const std::string& run_id) const {
  return ReadRun(impl_->database, run_id);
}

Result<std::string> Store::ResolveRun(const std::string& prefix) const {
  return nanwatch::ResolveRun(impl_->database, prefix);
}

Result<std::vector<std::string>> Store::RunsOfJob(const std::string& job) const {
  return nanwatch::RunsOfJob(impl_->database, job);
}

Result<RunFacts> Store::Facts(const std::string& run_id) const {
  Result<Transaction> snapshot = Transaction::BeginRead(impl_->database);
  if (!snapshot.ok()) return snapshot.status();
  return ReadFacts(impl_->database, run_id, kRecordsPerRunMax);
}

Result<std::vector<RunFacts>> Store::FactsOfJob(const std::string& job) const {
  Result<Transaction> snapshot = Transaction::BeginRead(impl_->database);
  if (!snapshot.ok()) return snapshot.status();
  const Result<std::vector<std::string>> ids = RunsOfJob(job);
  if (!ids.ok()) return ids.status();
  const Result<uint64_t> each = RecordsPerRun(impl_->database, job);
  if (!each.ok()) return each.status();
  std::vector<RunFacts> all;
  for (const std::string& id : *ids) {
    Result<RunFacts> facts = ReadFacts(impl_->database, id, *each);
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
  return ReadIncidents(impl_->database, job);
}

Result<std::vector<Warning>> Store::Warnings(const std::string& job) const {
  return ReadWarnings(impl_->database, job);
}

Result<TrainingHistory> Store::TrainingOf(const std::string& run_id) const {
  const Result<int64_t> key = KeyOfRun(impl_->database, run_id);
  if (!key.ok()) return key.status();
  TrainingHistory training;
  if (Status read = ReadTraining(impl_->database, *key, training); !read.ok()) return read;
  return training;
}

Result<std::optional<JobExit>> Store::ExitOfJob(const std::string& job) const {
  return FindLastExit(impl_->database, job);
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

Result<bool> Store::HasRecord(const std::string& run_id, uint64_t ticket) const {
  Result<Statement> query = impl_->database.Prepare(
      "SELECT 1 FROM record WHERE run = (SELECT key FROM run WHERE id = ?1) AND ticket = ?2");
  if (!query.ok()) return query.status();
  return query->BindText(1, run_id).BindUnsigned(2, ticket).Next();
}

Result<int64_t> Store::ChangeCounter() const { return impl_->database.Ask("PRAGMA data_version"); }

}  // namespace nanwatch
