// SPDX-License-Identifier: Apache-2.0
// The file outbox.sent beside the daemon's database: how far the sender of an outbox (outbox.h) is.
// The sender writes it and the daemon reads it, so that the database keeps its one writer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

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

// A row that a gatherer has acknowledged, and how far the outbox was sent then.
struct SentMark {
  uint64_t at_real_ns = 0;  // when it was acknowledged, by the sender's clock
  SentUpTo up_to{};
  HeldRow row = {};
  bool operator==(const SentMark&) const = default;
};
// Of the last day, the oldest first, some dozens: those before another are ever further apart.
using SentMarks = std::vector<SentMark>;
inline constexpr uint64_t kSentMarksKeptNs = uint64_t{86'400} * 1'000'000'000;
[[nodiscard]] SentMarks ReadMarks(const std::string& state_dir);
// Adds one that is newer than the others, and lets go of those that are too many or too old.
void AddMark(SentMarks& marks, SentMark newest);

Status WriteSent(const std::string& state_dir, const SentUpTo& sent,
                 const RefusedRows& refused = {}, const SentMarks& marks = {});

}  // namespace nanwatch
