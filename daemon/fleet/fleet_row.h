// SPDX-License-Identifier: Apache-2.0
// One thing that a fleet knows of one of its daemons: a value type, the same in a daemon's outbox,
// on the wire and in the fleet's database. A daemon gives each a number of its own sequence, so the
// pair (daemon, sequence) names it wherever it arrives, however often.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace nanwatch {

// Stored and sent: the numbers stay.
enum class FleetKind : uint8_t {
  kRun = 1,  // RunFacts: run, state, training, steps, sites; replaces the run's one before
  kFindings =
      2,  // RunFacts: the sites, records and reach that are new; merged in order, before the state
  kStep = 3,      // StepSummary, at most one of a run in ten seconds
  kIncident = 4,  // Incident, as its host concluded: new, or other than before
  kWarning = 5,   // Warning, likewise
  kLoss = 6,      // OutboxLoss; replaces the one before
};
inline constexpr std::array kFleetKinds = {FleetKind::kRun,     FleetKind::kFindings,
                                           FleetKind::kStep,    FleetKind::kIncident,
                                           FleetKind::kWarning, FleetKind::kLoss};

// "run", "findings", ...; "" for a number that is none.
[[nodiscard]] std::string_view NameOf(FleetKind kind);

// Rows of a lane are sent in the order of their numbers; a lane before those that follow it.
enum class FleetLane : uint8_t { kConclusions = 0, kRuns = 1, kFindings = 2, kSteps = 3 };
inline constexpr size_t kFleetLanes = 4;
[[nodiscard]] FleetLane LaneOf(FleetKind kind);

// A rank that has not ended and was not heard of for so long fell silent. Its daemon sends a state
// every ten seconds, a long one every minute (daemon/store/outbox.h).
inline constexpr int64_t kFleetSilentSeconds = 180;

struct FleetRow {
  std::string daemon = {};   // UUID, lower case
  uint64_t sequence = 0;     // below 2^63
  uint64_t recorded_ns = 0;  // the daemon's clock when it wrote the row, since 1970 UTC
  FleetKind kind = FleetKind::kRun;
  std::string job = {};  // JobOf; "" of kLoss
  std::string run = {};  // id, 16 hexadecimal digits; "" of kLoss
  int32_t rank = 0;
  std::string launch = {};  // of kRun: what its launch shares (daemon/ingest/launch_of_process.h)
  std::string body = {};    // the serialized message that `kind` names
  std::string tenant = {};  // whose token it came with; a gatherer's word, never sent

  bool operator==(const FleetRow&) const = default;
};

// What a row may have at most. One that a daemon writes has less.
inline constexpr size_t kFleetBodyBytesMax = size_t{1} << 20;
inline constexpr size_t kFleetJobBytesMax = 512;
inline constexpr size_t kFleetLaunchBytesMax = 512;

// Why a row that came from outside is none, a sentence; "" when it is one. Its body is parsed.
[[nodiscard]] std::string WhatIsWrong(const FleetRow& row);
// Likewise of what names a row.
[[nodiscard]] std::string WhatIsWrongWithName(const std::string& daemon, uint64_t sequence,
                                              uint64_t recorded_ns);
[[nodiscard]] bool IsRunId(std::string_view text);

}  // namespace nanwatch
