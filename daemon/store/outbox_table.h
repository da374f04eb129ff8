// SPDX-License-Identifier: Apache-2.0
// The rows of an outbox (outbox.h) in the daemon's database: who wrote them, in which order, and
// how much of them there may be.
//
// A row carries the identity of the daemon that wrote it. A state directory that was copied gets an
// identity of its own for what comes; what it held stays that of the original, so both may send it.
// Numbers go on from the clock (microseconds since 1970) at each start, so that a database that was
// restored from a backup does not give numbers again.
//
// Beyond its options, what was acknowledged goes first: it is kept only for a database that turns
// out to lack it. Then steps go, the oldest of them; then findings, of each run the newest, because
// the first ones explain; then states of runs; conclusions last. What went without having been sent
// is counted, and findings also by run.
//
// Every function works inside the caller's transaction. One owner, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "daemon/base/status.h"
#include "daemon/fleet/fleet_row.h"
#include "daemon/store/outbox_ledger.h"
#include "daemon/store/outbox_marker.h"
#include "daemon/store/outbox_options.h"
#include "daemon/store/outbox_past.h"
#include "daemon/store/outbox_reader.h"
#include "daemon/store/sqlite.h"
#include "verdict.pb.h"

namespace nanwatch {

class OutboxTable {
 public:
  // Makes its tables where there are none, or damaged ones. `database` must outlive the object.
  // `note` becomes a sentence for the user where the state directory is a copy, an earlier outbox
  // of it is gone, or this one was full.
  static Result<OutboxTable> Open(const Database& database, const std::string& database_path,
                                  uint64_t now_real_ns, OutboxOptions options, std::string& note);

  // Gives the row its number. One that waits with the same kind and `subject` is replaced, unless
  // `subject` is "".
  Status Insert(FleetRow row, const std::string& subject);
  // Rows that were acknowledged a while ago, at most once a second; and a row about what went,
  // where some did.
  Status RemoveSent(uint64_t now_real_ns);
  // That so many records of a run were not written here.
  Status CountLost(const std::string& run, uint64_t records) { return CountLost(run, records, 0); }
  // As the ledger's.
  [[nodiscard]] Result<OutboxLedger::Findings> FindingsOf(const std::string& run) const {
    return ledger_.FindingsOf(run);
  }
  [[nodiscard]] std::set<std::string> TakeRunsThatLost() { return ledger_.TakeRunsThatLost(); }

  // What is known of the launch of a run, found out the first time that it is asked.
  Result<std::string> LaunchOf(const std::string& id, const Run& run);

  // After a transaction that was not committed: counts are taken anew.
  void Forget();

  [[nodiscard]] const std::string& daemon() const { return daemon_; }
  [[nodiscard]] const OutboxOptions& options() const { return options_; }
  [[nodiscard]] const std::string& state_dir() const { return state_dir_; }

 private:
  OutboxTable(const Database& database, OutboxOptions options)
      : database_(&database),
        options_(std::move(options)),
        ledger_(database),
        past_(database, options_.kept_ns) {}
  Status Resume(const std::optional<OutboxMarker>& marker);
  Status TakeIdentity(const std::string& database_path, uint64_t now_real_ns, std::string& note);
  Status NoteLoss(std::string& note) const;
  Status TakeRefused();
  Status CountRows();
  Status RemoveWaiting(const FleetRow& row, const std::string& subject);
  Status MakeRoom();
  Result<bool> LetGoOfSent();
  Result<bool> LetGo(FleetLane lane);
  Result<uint64_t> Remove(Statement& statement);
  Status CountLost(const std::string& run, uint64_t records, uint64_t rows);
  Status AddLoss();
  void Uncount(int64_t body_bytes);

  const Database* database_;
  OutboxOptions options_;
  std::string state_dir_;
  std::string daemon_;
  uint64_t next_sequence_ = 0;
  uint64_t now_real_ns_ = 0;
  uint64_t removed_at_ns_ = 0;
  SentUpTo removed_{};
  bool counted_ = false;
  uint64_t bytes_ = 0;
  uint64_t rows_ = 0;
  bool has_loss_ = false;  // that is not in a row yet
  OutboxLedger ledger_;
  OutboxPast past_;
};

}  // namespace nanwatch
