// SPDX-License-Identifier: Apache-2.0
// What the fleet is to know of this daemon, until it has been sent: rows in the daemon's database
// (outbox_table.h), written in the transactions of the facts themselves. Off unless asked for.
//
// The daemon writes rows and removes them; `nanwatch forward` reads them, and says in the file
// outbox.sent how far each lane has been sent. So the database keeps its one writer, and a sender
// that hangs holds nobody up.
//
// What is new is a row of its own: sites, records, reach. What only moves on replaces its row that
// waits, and comes less often: the state of a run with the counts of its sites, an incident or a
// warning whose counts moved.
//
// Every function but Open works inside the caller's transaction. Where its tables turn out to be
// damaged, the transaction goes on without it, and it is off until the daemon is started again. One
// owner, one thread.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/fleet/fleet_row.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/store/outbox_table.h"
#include "daemon/store/sqlite.h"
#include "verdict.pb.h"

namespace nanwatch {

// Between two steps, and between two states, of a run of which nothing else is new.
inline constexpr uint64_t kOutboxEveryNs = 10'000'000'000;
// Between two states while findings come.
inline constexpr uint64_t kOutboxStormNs = 2'000'000'000;
// A state that is longer comes so much less often.
inline constexpr size_t kOutboxLongState = size_t{16} << 10;
inline constexpr uint64_t kOutboxLongFactor = 6;
// Between two rows of an incident of which only counts moved: kOutboxEveryNs, then twice as long
// each time, at most this. Once its job has ended it does not wait.
inline constexpr uint64_t kOutboxCountsNs = 640'000'000'000;

class Outbox {
 public:
  // As OutboxTable::Open.
  static Result<Outbox> Open(const Database& database, const std::string& database_path,
                             uint64_t now_real_ns, OutboxOptions options, std::string& note);

  // What a batch brought, once its rows are written; `run` is the run's key.
  Status AddBatch(int64_t run, const RunBatch& batch, uint64_t now_real_ns);
  // The state of a run, which changed otherwise.
  Status AddState(int64_t run, uint64_t now_real_ns);
  // Those of `now` that are not among `before`, or are other than there.
  Status AddIncidents(const std::string& job, const std::vector<Incident>& before,
                      const std::vector<Incident>& now);
  Status AddWarnings(const std::string& job, const std::vector<Warning>& before,
                     const std::vector<Warning>& now);

  // To be called after a transaction that was not committed.
  void Forget();

 private:
  // When something of a run was last written, by the daemon's clock.
  struct Written {
    uint64_t state_ns = 0;
    size_t state_bytes = 0;
    uint64_t step_ns = 0;
    uint64_t records = 0;
  };
  // A conclusion as it was last written.
  struct Said {
    std::string body;
    std::string essence;  // the body without what only counts on
    uint64_t at_ns = 0;
    uint64_t every_ns = kOutboxEveryNs;
  };

  Outbox(const Database& database, OutboxTable table)
      : database_(&database), table_(std::move(table)) {}
  template <typename Work>
  Status Guarded(const Work& work);
  void ReportDamage(const Status& why);
  Status SwitchOff(const Status& why);
  Status WriteBatch(int64_t run, const RunBatch& batch, uint64_t now_real_ns);
  Status WriteState(int64_t run, uint64_t now_real_ns);
  Status Advance(uint64_t now_real_ns);
  Status WriteStatesOfLost(uint64_t now_real_ns);
  Status AddFindings(const RunBatch& batch, FleetRow row, Written& written);
  Result<bool> HasEnded(const std::string& job) const;
  template <typename Conclusion>
  Status AddConclusions(FleetKind kind, const std::string& job,
                        const std::vector<Conclusion>& before, const std::vector<Conclusion>& now);

  const Database* database_;
  OutboxTable table_;
  std::string damage_;         // "": it is on
  bool is_marked_ = false;     // as off, in the database
  uint64_t now_real_ns_ = 0;   // of the newest call that was given one
  uint64_t lost_said_ns_ = 0;  // when runs that lost records were last written for that
  std::unordered_map<int64_t, Written> written_;
  std::unordered_map<std::string, Said> said_;  // by kind and subject
};

}  // namespace nanwatch
