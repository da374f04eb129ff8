// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/outbox_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "daemon/base/directories.h"
#include "daemon/store/database_file.h"
#include "daemon/store/outbox_marker.h"
#include "daemon/store/outbox_options.h"
#include "verdict.pb.h"

namespace nanwatch {
namespace {

Status NoOutbox(const std::string& state_dir) {
  return Status(ErrorKind::kNotFound,
                "the daemon keeps no outbox in " + state_dir +
                    ": set NANWATCH_OUTBOX=1 for it, or 'outbox = true' in nanwatch.toml");
}

}  // namespace

uint64_t RecordsIn(const std::string& body) {
  RunFacts facts;
  (void)facts.ParseFromString(body);
  return std::max<uint64_t>(1, static_cast<uint64_t>(facts.records_size()));
}

// ---- reading

Result<OutboxLoss> ReadLoss(const Database& database) {
  Result<Statement> read = database.Prepare(
      "SELECT lost_conclusions, lost_runs, lost_findings, lost_steps, lost_outboxes,"
      " (SELECT COALESCE(SUM(rows), 0) FROM outbox_refused WHERE run = '') FROM outbox_self");
  if (!read.ok()) return read.status();
  const Result<bool> row = read->Next();
  if (!row.ok()) return row.status();
  OutboxLoss loss;
  if (!*row) return loss;
  loss.set_conclusions(read->Unsigned(0));
  loss.set_runs(read->Unsigned(1));
  loss.set_findings(read->Unsigned(2));
  loss.set_steps(read->Unsigned(3));
  loss.set_outboxes(read->Unsigned(4));
  loss.set_refused(read->Unsigned(5));
  return loss;
}

std::string LossText(const OutboxLoss& loss) {
  return fmt::format(
      "{} findings, {} states of runs and {} conclusions are missing in the outbox: it takes {} "
      "findings of a run, and lets go of rows when it is full because nothing is sent",
      loss.findings(), loss.runs(), loss.conclusions(), kOutboxRecordsPerRunMax);
}

Result<OutboxReader> OutboxReader::Open(const std::string& state_dir) {
  const Status none = NoOutbox(state_dir);
  Result<OpenedDatabase> opened = OpenDatabaseForReading(DatabasePath(state_dir));
  if (!opened.ok()) return opened.status().kind() == ErrorKind::kNotFound ? none : opened.status();
  const Result<int64_t> tables =
      opened->database.Ask("SELECT COUNT(*) FROM sqlite_master WHERE name = 'outbox_self'");
  if (!tables.ok()) return tables.status();
  if (*tables == 0) return none;
  return OutboxReader(std::move(opened->database), state_dir);
}

Status OutboxReader::IsKept() const {
  const Result<std::optional<OutboxMarker>> marker = ReadOutboxMarker(database_);
  if (!marker.ok()) return marker.status();
  if (!*marker || (*marker)->is_kept) return Status();
  if ((*marker)->damage.empty()) return NoOutbox(state_dir_);
  return Status(ErrorKind::kNotFound,
                "the outbox in " + state_dir_ +
                    " is damaged, and the daemon has switched it off: start nanwatchd again (" +
                    (*marker)->damage + ")");
}

Result<std::vector<FleetRow>> OutboxReader::Pending(const SentUpTo& sent, size_t rows_max,
                                                    size_t bytes_max) const {
  std::vector<FleetRow> rows;
  size_t bytes = 0;
  Result<Transaction> snapshot = Transaction::BeginRead(database_);
  if (!snapshot.ok()) return snapshot.status();
  for (size_t lane = 0; lane < sent.size(); ++lane) {
    Result<Statement> read = database_.Prepare(
        "SELECT sequence, daemon, recorded_ns, kind, job, run, rank, launch, body FROM outbox"
        " WHERE lane = ?1 AND sequence > ?2 ORDER BY sequence");
    if (!read.ok()) return read.status();
    read->Bind(1, static_cast<int64_t>(lane)).BindUnsigned(2, sent[lane]);
    while (rows.size() < rows_max && bytes < bytes_max) {
      const Result<bool> row = read->Next();
      if (!row.ok()) return row.status();
      if (!*row) break;
      rows.push_back({.daemon = read->Text(1),
                      .sequence = read->Unsigned(0),
                      .recorded_ns = read->Unsigned(2),
                      .kind = static_cast<FleetKind>(read->Integer(3)),
                      .job = read->Text(4),
                      .run = read->Text(5),
                      .rank = static_cast<int32_t>(read->Integer(6)),
                      .launch = read->Text(7),
                      .body = read->Text(8)});
      bytes += rows.back().body.size();
    }
  }
  return rows;
}

Result<int64_t> OutboxReader::ChangeCounter() const { return database_.Ask("PRAGMA data_version"); }

Result<OutboxReader::Backlog> OutboxReader::BacklogOf(const SentUpTo& sent) const {
  Backlog backlog;
  for (size_t lane = 0; lane < sent.size(); ++lane) {
    Result<Statement> read = database_.Prepare(
        "SELECT COUNT(*), MIN(recorded_ns) FROM outbox WHERE lane = ?1 AND sequence > ?2");
    if (!read.ok()) return read.status();
    const Result<bool> row =
        read->Bind(1, static_cast<int64_t>(lane)).BindUnsigned(2, sent[lane]).Next();
    if (!row.ok()) return row.status();
    if (read->Integer(0) == 0) continue;
    backlog.rows += read->Unsigned(0);
    const uint64_t oldest = read->Unsigned(1);
    if (backlog.oldest_real_ns == 0 || oldest < backlog.oldest_real_ns)
      backlog.oldest_real_ns = oldest;
  }
  return backlog;
}

}  // namespace nanwatch
