// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/outbox_marker.h"

namespace nanwatch {

Result<std::optional<OutboxMarker>> ReadOutboxMarker(const Database& database) {
  const Result<int64_t> tables =
      database.Ask("SELECT COUNT(*) FROM sqlite_master WHERE name = 'outbox_marker'");
  if (!tables.ok()) return tables.status();
  if (*tables == 0) return std::optional<OutboxMarker>();
  Result<Statement> read = database.Prepare("SELECT is_kept, since_ns, damage FROM outbox_marker");
  if (!read.ok()) return read.status();
  const Result<bool> row = read->Next();
  if (!row.ok()) return row.status();
  if (!*row) return std::optional<OutboxMarker>();
  return std::optional<OutboxMarker>({.is_kept = read->Integer(0) != 0,
                                      .since_real_ns = read->Unsigned(1),
                                      .damage = read->Text(2)});
}

Status WriteOutboxMarker(const Database& database, const OutboxMarker& marker) {
  constexpr char kTable[] =
      "CREATE TABLE IF NOT EXISTS outbox_marker (is_kept INTEGER NOT NULL,"
      " since_ns INTEGER NOT NULL, damage TEXT NOT NULL);"
      "DELETE FROM outbox_marker";
  if (Status made = database.Execute(kTable); !made.ok()) return made;
  Result<Statement> write = database.Prepare("INSERT INTO outbox_marker VALUES (?1, ?2, ?3)");
  if (!write.ok()) return write.status();
  return write->Bind(1, marker.is_kept ? 1 : 0)
      .BindUnsigned(2, marker.since_real_ns)
      .BindText(3, marker.damage)
      .Run();
}

Status MarkOutboxDamaged(const Database& database, uint64_t now_real_ns,
                         const std::string& damage) {
  Result<Transaction> transaction = Transaction::BeginWrite(database);
  if (!transaction.ok()) return transaction.status();
  OutboxMarker off = {.is_kept = false, .since_real_ns = now_real_ns, .damage = damage};
  const Result<std::optional<OutboxMarker>> before = ReadOutboxMarker(database);
  if (before.ok() && *before && !(*before)->is_kept) off.since_real_ns = (*before)->since_real_ns;
  if (!before.ok()) {
    if (!IsOutboxDamage(before.status())) return before.status();
    // It may have been off for any time.
    off.since_real_ns = 0;
    if (Status gone = database.Execute("DROP TABLE IF EXISTS outbox_marker"); !gone.ok())
      return gone;
  }
  if (Status written = WriteOutboxMarker(database, off); !written.ok()) return written;
  return transaction->Commit();
}

}  // namespace nanwatch
