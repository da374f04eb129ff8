// SPDX-License-Identifier: Apache-2.0
// Reads the fleet's database, by a role that may not write it. One connection an object, made anew
// when it broke; one thread an object. Errors are those of postgres.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/fleet/fleet_row.h"

namespace nanwatch {

inline constexpr int kFleetJobsMax = 1'000;
// Of one job that are read for a verdict: states and findings.
inline constexpr size_t kFleetRowsMax = 200'000;

struct FleetJob {
  std::string job;
  int64_t runs = 0;
  int64_t hosts = 0;
  int64_t world_size = 0;
  int64_t ended = 0;      // of the runs
  int64_t incidents = 0;  // as hosts concluded by themselves, every change counted
  std::string heard_at;   // of the newest row, UTC
};

struct FleetJobRows {
  std::vector<FleetRow> rows;
  bool is_whole = true;  // false: there are more than kFleetRowsMax
};

class FleetReader {
 public:
  virtual ~FleetReader() = default;
  // Those heard of last first.
  virtual Result<std::vector<FleetJob>> Jobs() = 0;
  // kNotFound: nobody reported such a job.
  virtual Result<FleetJobRows> RowsOfJob(const std::string& job) = 0;
};

[[nodiscard]] std::unique_ptr<FleetReader> MakeFleetReader(const std::string& connection);

}  // namespace nanwatch
