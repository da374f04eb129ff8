// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/outbox_ledger.h"

#include <algorithm>
#include <utility>

namespace nanwatch {
namespace {

constexpr char kLedgerTables[] =
    "CREATE TABLE IF NOT EXISTS outbox_lost (run TEXT PRIMARY KEY, records INTEGER NOT NULL)"
    " WITHOUT ROWID;"
    // Rows of findings.
    "CREATE TABLE IF NOT EXISTS outbox_findings (run TEXT PRIMARY KEY, written INTEGER NOT NULL,"
    " let_go INTEGER NOT NULL) WITHOUT ROWID;"
    // As RefusedRows has it; run '': all rows.
    "CREATE TABLE IF NOT EXISTS outbox_refused (run TEXT PRIMARY KEY, rows INTEGER NOT NULL,"
    " records INTEGER NOT NULL) WITHOUT ROWID;"
    // Of runs that the database keeps no more.
    "DELETE FROM outbox_lost WHERE run NOT IN (SELECT id FROM run);"
    "DELETE FROM outbox_findings WHERE run NOT IN (SELECT id FROM run);"
    "DELETE FROM outbox_refused WHERE run <> '' AND run NOT IN (SELECT id FROM run)";

constexpr char kRefused[] =
    "INSERT INTO outbox_refused VALUES (?1, ?2, ?3) ON CONFLICT (run) DO UPDATE"
    " SET rows = MAX(rows, ?2), records = MAX(records, ?3) WHERE ?2 > rows OR ?3 > records";

}  // namespace

Status OutboxLedger::Open() {
  if (Status made = database_->Execute(kLedgerTables); !made.ok()) return made;
  const Result<int64_t> refused =
      database_->Ask("SELECT COALESCE(SUM(rows), 0) FROM outbox_refused WHERE run = ''");
  if (!refused.ok()) return refused.status();
  refused_rows_ = static_cast<uint64_t>(*refused);
  return ReadRunsThatLost();
}

Status OutboxLedger::ReadRunsThatLost() {
  Result<Statement> read = database_->Prepare(
      "SELECT run FROM outbox_lost UNION SELECT run FROM outbox_refused WHERE run <> ''");
  if (!read.ok()) return read.status();
  Result<bool> row = read->Next();
  for (; row.ok() && *row; row = read->Next()) runs_that_lost_.insert(read->Text(0));
  return row.status();
}

Result<int64_t> OutboxLedger::CountWritten(const std::string& run) {
  Result<Statement> write = database_->Prepare(
      "INSERT INTO outbox_findings VALUES (?1, 1, 0)"
      " ON CONFLICT (run) DO UPDATE SET written = written + 1 RETURNING written - 1");
  if (!write.ok()) return write.status();
  const Result<bool> row = write->BindText(1, run).Next();
  if (!row.ok()) return row.status();
  return write->Integer(0);
}

Status OutboxLedger::CountLost(const std::string& run, uint64_t records, uint64_t rows) {
  runs_that_lost_.insert(run);
  Result<Statement> write = database_->Prepare(
      "INSERT INTO outbox_lost VALUES (?1, ?2)"
      " ON CONFLICT (run) DO UPDATE SET records = records + ?2");
  if (!write.ok()) return write.status();
  if (Status written = write->BindText(1, run).BindUnsigned(2, records).Run(); !written.ok())
    return written;
  Result<Statement> add =
      database_->Prepare("UPDATE outbox_findings SET let_go = let_go + ?2 WHERE run = ?1");
  if (!add.ok()) return add.status();
  if (Status added = add->BindText(1, run).BindUnsigned(2, rows).Run(); !added.ok()) return added;
  Result<Statement> sum =
      database_->Prepare("UPDATE outbox_self SET lost_findings = lost_findings + ?1");
  if (!sum.ok()) return sum.status();
  return sum->BindUnsigned(1, records).Run();
}

Status OutboxLedger::CountUnwritten(uint64_t since_real_ns, bool all_running) {
  Result<Statement> write = database_->Prepare(
      "INSERT INTO outbox_lost SELECT id, records FROM (SELECT id,"
      "  (SELECT COUNT(*) FROM record WHERE record.run = run.key) AS records FROM run"
      "  WHERE updated_real_ns >= ?1 OR (?2 AND ended = 0)) WHERE records > 0"
      " ON CONFLICT (run) DO UPDATE SET records = MAX(outbox_lost.records, excluded.records)");
  if (!write.ok()) return write.status();
  if (Status written = write->BindUnsigned(1, since_real_ns).Bind(2, all_running ? 1 : 0).Run();
      !written.ok())
    return written;
  // Of these the state may have changed: the fleet knows it, or is to know that it goes on.
  Result<Statement> read = database_->Prepare(
      "SELECT id FROM run WHERE updated_real_ns >= ?1 OR ended = 0"
      " OR id IN (SELECT run FROM outbox_launch)");
  if (!read.ok()) return read.status();
  Result<bool> row = read->BindUnsigned(1, since_real_ns).Next();
  for (; row.ok() && *row; row = read->Next()) runs_that_lost_.insert(read->Text(0));
  return row.ok() ? ReadRunsThatLost() : row.status();
}

Result<bool> OutboxLedger::TakeRefused(const RefusedRows& refused) {
  if (refused.rows <= refused_rows_) return false;
  Result<Statement> write = database_->Prepare(kRefused);
  if (!write.ok()) return write.status();
  if (Status all = write->BindText(1, "").BindUnsigned(2, refused.rows).Bind(3, 0).Run(); !all.ok())
    return all;
  for (const auto& [run, of_run] : refused.runs) {
    write->BindText(1, run).BindUnsigned(2, of_run.findings).BindUnsigned(3, of_run.records);
    if (Status written = write->Run(); !written.ok()) return written;
    if (database_->Changes() > 0) runs_that_lost_.insert(run);
  }
  refused_rows_ = refused.rows;
  return true;
}

Result<OutboxLedger::Findings> OutboxLedger::FindingsOf(const std::string& run) const {
  Result<Statement> read = database_->Prepare(
      "SELECT COALESCE((SELECT written - let_go FROM outbox_findings WHERE run = ?1), 0),"
      " COALESCE((SELECT records FROM outbox_lost WHERE run = ?1), 0),"
      " COALESCE((SELECT rows FROM outbox_refused WHERE run = ?1), 0),"
      " COALESCE((SELECT records FROM outbox_refused WHERE run = ?1), 0)");
  if (!read.ok()) return read.status();
  const Result<bool> row = read->BindText(1, run).Next();
  if (!row.ok()) return row.status();
  // Of a copied outbox the original's rows may be refused, too.
  const int64_t rows = std::max<int64_t>(0, read->Integer(0) - read->Integer(2));
  return Findings{.rows = static_cast<uint64_t>(rows),
                  .records_lost = read->Unsigned(1) + read->Unsigned(3)};
}

std::set<std::string> OutboxLedger::TakeRunsThatLost() {
  taken_ = std::exchange(runs_that_lost_, {});
  return taken_;
}

void OutboxLedger::Forget() {
  refused_rows_ = 0;
  runs_that_lost_.merge(taken_);
}

}  // namespace nanwatch
