// SPDX-License-Identifier: Apache-2.0
// The file outbox.sent beside the daemon's database: how far the sender of an outbox (outbox.h) is.
// The sender writes it and the daemon reads it, so that the database keeps its one writer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "daemon/base/status.h"
#include "daemon/fleet/fleet_row.h"
#include "daemon/fleet/held_row.h"

namespace nanwatch {

// The number of the newest row of each lane that was sent, 0: none.
using SentUpTo = std::array<uint64_t, kFleetLanes>;
[[nodiscard]] std::string SentPath(const std::string& state_dir);  // outbox.sent
// All zero where there is no such file, or it makes no sense: then everything is sent again.
[[nodiscard]] SentUpTo ReadSent(const std::string& state_dir);
// The file is there and does not say how far.
[[nodiscard]] bool IsSentDamaged(const std::string& state_dir);

// Rows that were sent and refused for good, since the file began.
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

// The newest row that a gatherer has acknowledged; empty: none has.
[[nodiscard]] std::optional<HeldRow> ReadHeld(const std::string& state_dir);

Status WriteSent(const std::string& state_dir, const SentUpTo& sent,
                 const RefusedRows& refused = {}, const std::optional<HeldRow>& held = {});

}  // namespace nanwatch
