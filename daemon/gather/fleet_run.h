// SPDX-License-Identifier: Apache-2.0
// A run as the fleet's database knows it.
#pragma once

#include <cstdint>
#include <string>

#include "verdict.pb.h"

namespace nanwatch {

struct FleetRun {
  std::string daemon = {};  // that reported it
  std::string run = {};     // id
  std::string launch = {};  // what its launch shares (FleetRow)
  uint64_t sequence = 0;
  uint64_t recorded_ns = 0;       // the daemon's clock, of the newest state
  int64_t heard_ago_s = 0;        // by the database's clock
  RunFacts facts = {};            // the newest state; with findings where these were read
  uint64_t findings_missing = 0;  // rows that the state speaks of, and that were not read
  uint64_t findings_ahead = 0;    // that were read, and that the state does not speak of yet
};

}  // namespace nanwatch
