// SPDX-License-Identifier: Apache-2.0
// Adapter to PostgreSQL. One connection an object, made anew when it broke; one thread an object.
//
// Of failures, kIo means that the database was out of reach or ended the transaction, and the same
// call may be repeated later; kInvalid that it refuses what is in the rows; kPermission that it
// refuses the call whatever is in them, as where a right or a table is missing. After kIo it is not
// known whether the transaction took place: what is written here may be written again.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/fleet/fleet_row.h"
#include "daemon/fleet/held_row.h"

namespace nanwatch {

// A daemon, and the tenant whose token its rows came with.
using DaemonOfTenant = std::pair<std::string, std::string>;

struct WriteCounts {
  uint64_t written = 0;
  uint64_t duplicates = 0;  // were there already; of runs, were older than what is there
  // Whose rows were left out: the daemon belongs to another tenant.
  std::set<DaemonOfTenant> foreign = {};
  std::set<HeldRow> missing = {};
};

// Writes rows, by a role that may not read them. A daemon belongs to the tenant that its first row
// came from.
class FleetWriter {
 public:
  virtual ~FleetWriter() = default;
  // One transaction for all, committed when it returns ok. Those of `held` that were not there
  // before it are missing; a tenant does not hear that of daemons of others, and nobody does where
  // the schema is older than version 5.
  virtual Status Write(std::span<const FleetRow> rows, std::span<const HeldRow> held,
                       WriteCounts& counts) = 0;
};

[[nodiscard]] std::unique_ptr<FleetWriter> MakeFleetWriter(const std::string& connection);

struct FleetMaintenance {
  int version_before = 0;  // of the schema; 0: there was none
  int days_made = 0;
  int days_dropped = 0;
  int days_kept = 0;  // that are old, and have rows that stay
};

// Brings the schema to this program's version, makes the partitions of the days around `today_days`
// (days since 1970 UTC), and drops what came `keep_days` ago, by the database's clock. Findings stay
// as long as the state of their run. By the owner of the schema, who must be allowed to create roles
// the first time.
[[nodiscard]] Result<FleetMaintenance> MaintainFleet(const std::string& connection,
                                                     int64_t today_days, int keep_days);

}  // namespace nanwatch
