// SPDX-License-Identifier: Apache-2.0
// The outbox (outbox.h) as those see it who send it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/fleet/fleet_row.h"
#include "daemon/store/outbox_sent.h"
#include "daemon/store/sqlite.h"
#include "fleet.pb.h"

namespace nanwatch {

// Records in a row's body; 1 of one without: it had new sites.
[[nodiscard]] uint64_t RecordsIn(const std::string& body);

// What an outbox in this database let go of, to stay within its limits.
[[nodiscard]] Result<OutboxLoss> ReadLoss(const Database& database);
// What a person is told of it: what it was, and the two limits that may have been met.
[[nodiscard]] std::string LossText(const OutboxLoss& loss);

// Reads rows while a daemon writes them.
class OutboxReader {
 public:
  // kNotFound: there is no database, or it has no outbox: the daemon was not asked for one.
  static Result<OutboxReader> Open(const std::string& state_dir);

  // What was not sent yet, lane by lane; at most so many, and not much more than `bytes_max`.
  [[nodiscard]] Result<std::vector<FleetRow>> Pending(const SentUpTo& sent, size_t rows_max,
                                                      size_t bytes_max) const;
  [[nodiscard]] Result<OutboxLoss> Loss() const { return ReadLoss(database_); }
  // kNotFound: the daemon writes no more of it, and why.
  [[nodiscard]] Status IsKept() const;
  // As Store::ChangeCounter.
  [[nodiscard]] Result<int64_t> ChangeCounter() const;
  // How many rows wait, and when the oldest of them was written, by the daemon's clock; 0: none.
  struct Backlog {
    uint64_t rows = 0;
    uint64_t oldest_real_ns = 0;
  };
  [[nodiscard]] Result<Backlog> BacklogOf(const SentUpTo& sent) const;

 private:
  OutboxReader(Database database, std::string state_dir)
      : database_(std::move(database)), state_dir_(std::move(state_dir)) {}
  Database database_;
  std::string state_dir_;
};

}  // namespace nanwatch
