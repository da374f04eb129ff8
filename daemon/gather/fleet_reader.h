// SPDX-License-Identifier: Apache-2.0
// Reads the fleet's database, by a role that may not write it. One connection an object, made anew
// when it broke; one thread an object. Errors are those of postgres.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/gather/fleet_hosts.h"
#include "daemon/gather/fleet_run.h"
#include "daemon/gather/fleet_verdict.h"
#include "fleet.pb.h"

namespace nanwatch {

inline constexpr int kFleetJobsMax = 1'000;
// Of one job that are read for a verdict; the bytes are of bodies.
inline constexpr size_t kFleetRunsMax = 100'000;
inline constexpr size_t kFleetRowsMax = 200'000;
inline constexpr size_t kFleetIncidentsMax = 50'000;
inline constexpr size_t kFleetBytesMax = size_t{256} << 20;
inline constexpr size_t kFleetStepsMax = 200'000;

struct FleetJob {
  std::string job;
  int64_t launches = 0;  // at least: those that their environment tells apart
  int64_t runs = 0;
  int64_t hosts = 0;
  int64_t world_size = 0;
  int64_t ended = 0;          // of the runs
  int64_t incidents = 0;      // as hosts concluded by themselves, changes counted too
  std::string heard_at = {};  // of the newest row, UTC
};

struct FleetRuns {
  std::vector<FleetRun> runs;
  uint64_t left_out = 0;  // beyond kFleetRunsMax or kFleetBytesMax
};

// One of many jobs, without findings.
struct ListedRun {
  std::string job;
  FleetRun run;
};

// Of runs, by id; each in the order of its daemon.
using FleetSteps = std::map<std::string, std::vector<StepSummary>>;

struct FleetFindings {
  FindingsByRun bodies;
  bool is_whole = true;  // false: there are more than kFleetRowsMax or kFleetBytesMax
};

struct FleetIncidents {
  std::vector<HostIncident> incidents;
  bool is_whole = true;  // false: there are more than kFleetIncidentsMax
};

// Of one tenant; "" where one token is for all.
class FleetReader {
 public:
  virtual ~FleetReader() = default;
  // Those heard of last first.
  virtual Result<std::vector<FleetJob>> Jobs(const std::string& tenant) = 0;
  // The newest state of each run of a job; where there are too many, of those heard of last.
  // kNotFound: nobody reported such a job.
  virtual Result<FleetRuns> RunsOfJob(const std::string& tenant, const std::string& job) = 0;
  // Of these runs. Where not all have room, the first of each run come before others.
  virtual Result<FleetFindings> FindingsOf(const std::string& tenant, const std::string& job,
                                           const std::vector<FleetRun>& runs) = 0;
  // Those heard of last first, at most kFleetJobsMax.
  virtual Result<std::vector<ListedRun>> Runs(const std::string& tenant) = 0;
  // Of these runs; where there are too many, the newest.
  virtual Result<FleetSteps> StepsOf(const std::string& tenant, const std::string& job,
                                     const std::vector<FleetRun>& runs) = 0;
  // Of all jobs, as hosts concluded them; those that came last.
  virtual Result<FleetIncidents> Incidents(const std::string& tenant, size_t count_max) = 0;
  // What the daemons that report these runs say they let go of, all together.
  virtual Result<OutboxLoss> LossOf(const std::vector<FleetRun>& runs) = 0;
};

[[nodiscard]] std::unique_ptr<FleetReader> MakeFleetReader(const std::string& connection);

}  // namespace nanwatch
