// SPDX-License-Identifier: Apache-2.0
// Rows as the tests of the fleet need them.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/fleet/fleet_row.h"
#include "verdict.pb.h"

namespace nanwatch {

inline constexpr char kDaemonOfTests[] = "0f8fad5b-d9cb-469f-a165-70867728950e";

inline FleetRow StepRow(uint64_t sequence) {
  StepSummary step;
  step.set_index(sequence);
  return {.daemon = kDaemonOfTests,
          .sequence = sequence,
          .recorded_ns = 1'764'203'000'000'000'000 + sequence,
          .kind = FleetKind::kStep,
          .job = "train",
          .run = "00000000000000ab",
          .rank = 3,
          .body = step.SerializeAsString()};
}

}  // namespace nanwatch
