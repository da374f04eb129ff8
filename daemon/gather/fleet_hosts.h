// SPDX-License-Identifier: Apache-2.0
// Hosts that stand out: what made a bad value first was on them, in several launches. Pure.
//
// Each host has concluded its incidents by itself: a value that came from another rank is `received`
// there, and names no host. Of one launch the hosts with the earliest step began it; which of them
// was first by a clock decides nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verdict.pb.h"

namespace nanwatch {

// As a host concluded it; one that it concluded again comes again, and the newest counts.
struct HostIncident {
  std::string daemon = {};
  uint64_t sequence = 0;  // of the daemon; a newer one is greater
  std::string host = {};
  std::string job = {};
  std::string launch = {};  // what runs of one launch share, job id included
  Incident incident = {};
};

struct FleetHost {
  std::string host = {};
  int launches = 0;        // that it began
  int incidents = 0;       // with which
  std::string op = {};     // of most of these
  std::string layer = {};  // of one of them
};

inline constexpr int kFleetHostLaunchesLeast = 2;  // below, a host does not stand out

// The newest of each incident that may have begun on its host what went wrong: no harmless ones, and
// none that came from another rank. Borrows from `incidents`.
[[nodiscard]] std::vector<const HostIncident*> FirstOnTheirHosts(
    const std::vector<HostIncident>& incidents);

// Those that began most launches first.
[[nodiscard]] std::vector<FleetHost> HostsThatStandOut(const std::vector<HostIncident>& incidents);

}  // namespace nanwatch
