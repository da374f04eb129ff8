// SPDX-License-Identifier: Apache-2.0
#include "daemon/fleet/held_row.h"

#include <fmt/format.h>

#include <sstream>

namespace nanwatch {

HeldRow NameOf(const FleetRow& row) {
  return {.daemon = row.daemon,
          .sequence = row.sequence,
          .recorded_ns = row.recorded_ns,
          .run_of_state = row.kind == FleetKind::kRun ? row.run : "",
          .tenant = row.tenant};
}

std::string ToText(const HeldRow& row) {
  std::string text = fmt::format("{} {} {}", row.daemon, row.sequence, row.recorded_ns);
  if (!row.run_of_state.empty()) text += " " + row.run_of_state;
  return text;
}

std::optional<HeldRow> ParseHeldRow(const std::string& text) {
  HeldRow row;
  std::istringstream words(text);
  if (!(words >> row.daemon >> row.sequence >> row.recorded_ns)) return std::nullopt;
  words >> row.run_of_state;
  if (!row.run_of_state.empty() && !IsRunId(row.run_of_state)) return std::nullopt;
  if (!WhatIsWrongWithName(row.daemon, row.sequence, row.recorded_ns).empty()) return std::nullopt;
  // Whatever else stands there, or between the words, is not ours.
  if (ToText(row) != text) return std::nullopt;
  return row;
}

}  // namespace nanwatch
