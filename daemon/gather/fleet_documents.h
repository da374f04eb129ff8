// SPDX-License-Identifier: Apache-2.0
// What is said about the jobs of a fleet, as documents: each made from rows, by the functions that
// one host uses. `id` is a job's, or JOB@LAUNCH; without LAUNCH it is the newest one.
//
// No state, one thread a reader.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "daemon/gather/fleet_reader.h"
#include "fleet.pb.h"

namespace nanwatch {

inline constexpr size_t kFleetFactsBytesMax = size_t{32} << 20;
inline constexpr size_t kFleetIncidentsListedMax = 2'000;

// One of them may be empty: then there is only the other.
struct FleetDocument {
  std::string json = {};
  std::string protobuf = {};
};

struct FleetQuestion {
  FleetReader& reader;
  const std::string& tenant;
  const Clock& clock;
};

// A launch of a job, and the answer for it.
struct JudgedLaunch {
  FleetVerdict fleet;
  std::string job;
  std::vector<FleetRun> runs;  // with findings
};
[[nodiscard]] Result<JudgedLaunch> JudgeJob(const FleetQuestion& question, const std::string& id);

// Whether one still goes on: a run of it has not ended, and was heard of within the hour. A launch
// that nobody knows any more does not.
[[nodiscard]] Result<bool> GoesOn(const FleetQuestion& question, const std::string& job,
                                  const std::string& launch);

[[nodiscard]] Result<FleetDocument> JobListOf(const FleetQuestion& question, const std::string& id);
[[nodiscard]] Result<FleetDocument> HostListOf(const FleetQuestion& question,
                                               const std::string& id);
// FleetRunList: the runs that were heard of last.
[[nodiscard]] Result<FleetDocument> RunListOf(const FleetQuestion& question, const std::string& id);
// The document of one host with a member `fleet` more, and FleetVerdict.
[[nodiscard]] Result<FleetDocument> VerdictOf(const FleetQuestion& question, const std::string& id);
// nanwatch.page/1, of at most 512 runs.
[[nodiscard]] Result<FleetDocument> PageOf(const FleetQuestion& question, const std::string& id);
// FleetFacts, of at most so many runs and kFleetFactsBytesMax.
[[nodiscard]] Result<FleetDocument> FactsOf(const FleetQuestion& question, const std::string& id);

}  // namespace nanwatch
