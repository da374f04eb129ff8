// SPDX-License-Identifier: Apache-2.0
// A seed -> a job of many ranks, as the rows that the daemons of its hosts send, and the right
// answer. What made it is known by construction; nothing of the product is asked.
//
// Clocks of hosts are off by up to ten minutes. One rank in twenty is silent: nothing of it arrives,
// or only its state, or all but some of its findings. Rows come in any order, some of them twice.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/fleet/fleet_row.h"

namespace nanwatch {

struct SeededJobLimits {
  int32_t ranks_min = 64;
  int32_t ranks_max = 8'000;
};

// What made the first value that ruined the training.
struct Culprit {
  int32_t rank = 0;
  std::string op = {};     // of an external one: ""
  std::string layer = {};  // likewise
  int64_t step = 0;
  bool has_arrived = false;  // all that its daemon reported of it
};

struct SeededJob {
  std::string job = {};
  std::string story = {};  // "two_hops": how it spread
  int32_t ranks = 0;
  std::set<int32_t> silent = {};         // all or some of their rows are missing
  std::vector<Culprit> culprits = {};    // in the same step; empty: nothing went wrong
  bool has_whole_chain = true;           // all that the value went through has arrived
  std::vector<FleetRow> delivered = {};  // in the order in which they arrive

  // By the facts that have arrived.
  [[nodiscard]] bool is_decided() const;
  [[nodiscard]] const Culprit* FindCulprit(int32_t rank) const;
};

[[nodiscard]] SeededJob MakeSeededJob(uint64_t seed, const SeededJobLimits& limits);

}  // namespace nanwatch
