// SPDX-License-Identifier: Apache-2.0
// What became of the findings of each run in an outbox (outbox.h): how many rows of them were
// written, let go of, or refused for good by who takes them. The state of a run says how many rows
// of findings are to arrive, and how many records never will.
//
// Every function works inside the caller's transaction. One owner, one thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "daemon/base/status.h"
#include "daemon/store/outbox_sent.h"
#include "daemon/store/sqlite.h"

namespace nanwatch {

class OutboxLedger {
 public:
  explicit OutboxLedger(const Database& database) : database_(&database) {}

  // Makes its tables where there are none, and forgets runs that the database keeps no more.
  Status Open();

  // A row with findings of the run is written. Gives how many were before it.
  Result<int64_t> CountWritten(const std::string& run);
  // So many records were not written, or let go of with `rows` rows of findings.
  Status CountLost(const std::string& run, uint64_t records, uint64_t rows);
  // Runs of which something was recorded since then have lost their records; with `all_running`
  // those that have not ended, too. They are among TakeRunsThatLost, whether they had records or
  // not, and so is each that has not ended, or of which the fleet knows.
  Status CountUnwritten(uint64_t since_real_ns, bool all_running);
  // What was refused so far, of which some may be known. Whether any of it is new.
  Result<bool> TakeRefused(const RefusedRows& refused);

  struct Findings {
    uint64_t rows = 0;          // that have arrived or will
    uint64_t records_lost = 0;  // that will not
  };
  [[nodiscard]] Result<Findings> FindingsOf(const std::string& run) const;
  // Runs that lost records since this was asked last; the first time, all that are known.
  [[nodiscard]] std::set<std::string> TakeRunsThatLost();

  // After a transaction that was not committed.
  void Forget();

 private:
  Status ReadRunsThatLost();

  const Database* database_;
  uint64_t refused_rows_ = 0;  // known
  std::set<std::string> runs_that_lost_;
  std::set<std::string> taken_;  // the last time
};

}  // namespace nanwatch
