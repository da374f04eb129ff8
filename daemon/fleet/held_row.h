// SPDX-License-Identifier: Apache-2.0
// Whether the fleet's database still has what it had. One that is restored from a backup, or a
// replica that takes over before it has everything, lacks rows whose senders were told that they
// are committed. Only a sender can know: so it names, with each request, the newest row that was
// acknowledged to it, and hears when that row is not there.
//
// One row will do. A sender has one request at a time, so a database that has the row has what was
// acknowledged before it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/fleet/fleet_row.h"

namespace nanwatch {

// A row's name, and where the database has it.
struct HeldRow {
  std::string daemon = {};
  uint64_t sequence = 0;
  uint64_t recorded_ns = 0;
  // Of a state, which a newer one of the same run replaces: the run's id. Of others "".
  std::string run_of_state = {};
  std::string tenant = {};  // as FleetRow's: never sent

  bool operator==(const HeldRow&) const = default;
  auto operator<=>(const HeldRow&) const = default;
};

[[nodiscard]] HeldRow NameOf(const FleetRow& row);

// A header of a request: the row as text. An answer has it only with the word kRowIsMissing.
inline constexpr char kHeldRowHeader[] = "nanwatch-held-row";
inline constexpr char kRowIsMissing[] = "missing";

// "DAEMON SEQUENCE RECORDED_NS", and " RUN" of a state; without the tenant.
[[nodiscard]] std::string ToText(const HeldRow& row);
// Empty: it is none. Its numbers and ids are checked as those of a row.
[[nodiscard]] std::optional<HeldRow> ParseHeldRow(const std::string& text);

}  // namespace nanwatch
