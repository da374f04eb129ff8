// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/conclusions.h"

#include <cstddef>
#include <cstdint>

#include "daemon/store/rows.h"

namespace nanwatch {
namespace {

// Parameters of `write_sql`: job, position, and from 3 on what `bind` gives of each. `send` is
// called first, within the transaction.
template <typename Conclusion, typename Send, typename Bind>
Status Replace(const Database& database, const char* clear_sql, const char* write_sql,
               const std::string& job, const std::vector<Conclusion>& all, Send&& send,
               Bind&& bind) {
  Result<Transaction> transaction = Transaction::BeginWrite(database);
  if (!transaction.ok()) return transaction.status();
  if (Status sent = send(); !sent.ok()) return sent;
  Result<Statement> clear = database.Prepare(clear_sql);
  if (!clear.ok()) return clear.status();
  if (Status cleared = clear->BindText(1, job).Run(); !cleared.ok()) return cleared;
  Result<Statement> write = database.Prepare(write_sql);
  if (!write.ok()) return write.status();
  for (size_t i = 0; i < all.size(); ++i) {
    write->BindText(1, job).Bind(2, static_cast<int64_t>(i));
    bind(*write, all[i]);
    if (Status written = write->Run(); !written.ok()) return written;
  }
  return transaction->Commit();
}

}  // namespace

Status ReplaceIncidents(const Database& database, Outbox* outbox, const std::string& job,
                        const std::vector<Incident>& incidents) {
  const auto send = [&]() -> Status {
    if (outbox == nullptr) return Status();
    const Result<std::vector<Incident>> before = ReadIncidents(database, job);
    return before.ok() ? outbox->AddIncidents(job, *before, incidents) : before.status();
  };
  return Replace(database, "DELETE FROM incident WHERE job = ?1",
                 "INSERT INTO incident (job, position, run, rank, severity, op, layer, step, body)"
                 " VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9)",
                 job, incidents, send, [](Statement& write, const Incident& incident) {
                   const Finding& origin = incident.origin();
                   write.BindText(3, origin.run()).Bind(4, origin.rank());
                   write.BindText(5, incident.severity());
                   write.BindText(6, origin.op()).BindText(7, origin.layer());
                   write.Bind(8, origin.step()).BindBlob(9, incident.SerializeAsString());
                 });
}

Status ReplaceWarnings(const Database& database, Outbox* outbox, const std::string& job,
                       const std::vector<Warning>& warnings) {
  const auto send = [&]() -> Status {
    if (outbox == nullptr) return Status();
    const Result<std::vector<Warning>> before = ReadWarnings(database, job);
    return before.ok() ? outbox->AddWarnings(job, *before, warnings) : before.status();
  };
  return Replace(database, "DELETE FROM warning WHERE job = ?1",
                 "INSERT INTO warning (job, position, run, rank, severity, id, step, body)"
                 " VALUES (?1,?2,?3,?4,?5,?6,?7,?8)",
                 job, warnings, send, [](Statement& write, const Warning& warning) {
                   write.BindText(3, warning.run()).Bind(4, warning.rank());
                   write.BindText(5, warning.severity()).BindText(6, warning.id());
                   write.Bind(7, warning.step()).BindBlob(8, warning.SerializeAsString());
                 });
}

Result<std::vector<Incident>> ReadIncidents(const Database& database, const std::string& job) {
  return ReadBodies<Incident>(database,
                              "SELECT body FROM incident WHERE job = ?1 ORDER BY position", job);
}

Result<std::vector<Warning>> ReadWarnings(const Database& database, const std::string& job) {
  return ReadBodies<Warning>(database, "SELECT body FROM warning WHERE job = ?1 ORDER BY position",
                             job);
}

}  // namespace nanwatch
