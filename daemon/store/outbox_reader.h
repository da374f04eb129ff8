// SPDX-License-Identifier: Apache-2.0
// The outbox (outbox.h) as those see it who send it: its rows, and the file that says how far they
// got.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/fleet/fleet_row.h"
#include "daemon/store/sqlite.h"
#include "fleet.pb.h"

namespace nanwatch {

// The number of the newest row of each lane that was sent, 0: none.
using SentUpTo = std::array<uint64_t, kFleetLanes>;
[[nodiscard]] std::string SentPath(const std::string& state_dir);  // outbox.sent
// All zero where there is no such file, or it makes no sense: then everything is sent again.
[[nodiscard]] SentUpTo ReadSent(const std::string& state_dir);
// The file is there and does not say how far.
[[nodiscard]] bool IsSentDamaged(const std::string& state_dir);

// Rows that were sent and refused for good, since the file began. It is in the same file, so that
// the database keeps its one writer; the daemon takes it over from there.
struct RefusedRows {
  struct OfRun {
    uint64_t findings = 0;  // rows
    uint64_t records = 0;   // in these, at least one each; and one for each conclusion
    bool operator==(const OfRun&) const = default;
  };
  uint64_t rows = 0;  // of all runs
  std::map<std::string, OfRun> runs = {};
  bool operator==(const RefusedRows&) const = default;
};
inline constexpr size_t kRefusedRunsMax = 256;  // that are named; beyond, others make room
[[nodiscard]] RefusedRows ReadRefused(const std::string& state_dir);

Status WriteSent(const std::string& state_dir, const SentUpTo& sent,
                 const RefusedRows& refused = {});

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
