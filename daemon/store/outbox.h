// SPDX-License-Identifier: Apache-2.0
// What the fleet is to know of this daemon, until it has been sent: rows in the daemon's database,
// written in the transactions of the facts themselves. Off unless asked for.
//
// The daemon writes rows and removes them; `nanwatch forward` reads them, and says in the file
// outbox.sent how far each lane has been sent. So the database keeps its one writer, and a sender
// that hangs holds nobody up.
//
// A row carries the identity of the daemon that wrote it. A state directory that was copied gets an
// identity of its own for what comes; what it held stays that of the original, so both may send it.
// Numbers go on from the clock (microseconds since 1970) at each start, so that a database that was
// restored from a backup does not give numbers again.
//
// It has at most kOutboxBytesMax. Beyond, steps go first, the oldest of them; then findings, the
// newest, because the first explain; then states of runs; conclusions last. What went is counted.
//
// Every function but Open works inside the caller's transaction. One owner, one thread.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/fleet/fleet_row.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/store/outbox_reader.h"
#include "daemon/store/sqlite.h"
#include "verdict.pb.h"

namespace nanwatch {

inline constexpr uint64_t kOutboxBytesMax = uint64_t{256} << 20;
// Between two steps, and between two states, of a run of which nothing else is new.
inline constexpr uint64_t kOutboxEveryNs = 10'000'000'000;

class Outbox {
 public:
  // Makes its tables where there are none. `database` must outlive the object. `note` becomes a
  // sentence for the user where the state directory is a copy.
  static Result<Outbox> Open(const Database& database, const std::string& database_path,
                             uint64_t now_real_ns, uint64_t bytes_max, std::string& note);

  // What a batch brought, once its rows are written; `run` is the run's key.
  Status AddBatch(int64_t run, const RunBatch& batch, uint64_t now_real_ns);
  // The state of a run, which changed otherwise.
  Status AddState(int64_t run, uint64_t now_real_ns);
  // Those of `now` that are not among `before`, word for word.
  Status AddIncidents(const std::string& job, const std::vector<Incident>& before,
                      const std::vector<Incident>& now);
  Status AddWarnings(const std::string& job, const std::vector<Warning>& before,
                     const std::vector<Warning>& now);

  // To be called after a transaction that was not committed.
  void Forget() { counted_ = false; }

  [[nodiscard]] const std::string& daemon() const { return daemon_; }

 private:
  // When something of a run was last written, by the daemon's clock.
  struct Written {
    uint64_t state_ns = 0;
    uint64_t step_ns = 0;
    bool sites_counted_on = false;  // since they were last written
  };

  explicit Outbox(const Database& database) : database_(&database) {}
  Status TakeIdentity(const std::string& database_path, uint64_t now_real_ns, std::string& note);
  Status CountRows();
  Status RemoveSent(uint64_t now_real_ns);
  Status AddFindings(const RunBatch& batch, FleetRow row);
  Status Insert(FleetRow row);
  Status MakeRoom();
  Result<bool> LetGo(FleetLane lane);
  Status AddLoss();

  const Database* database_;
  std::string state_dir_;
  std::string daemon_;
  uint64_t bytes_max_ = 0;
  uint64_t next_sequence_ = 0;
  uint64_t now_real_ns_ = 0;  // of the newest call that was given one
  uint64_t removed_at_ns_ = 0;
  SentUpTo removed_{};
  bool counted_ = false;
  uint64_t bytes_ = 0;
  bool has_loss_ = false;  // that is not in a row yet
  std::unordered_map<int64_t, Written> written_;
};

}  // namespace nanwatch
