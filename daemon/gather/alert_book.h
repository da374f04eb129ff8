// SPDX-License-Identifier: Apache-2.0
// What is alerted, in the fleet's database: any number of processes may read and write it, and what
// one has begun the others go on with. One thread an object. Errors are those of postgres.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace nanwatch {

struct FleetAlert {
  std::string tenant = {};
  std::string job = {};
  std::string launch = {};
  std::string summary = {};
  std::string description = {};
  uint64_t begun_ns = 0;  // since 1970 UTC, by the database's clock
  uint64_t ended_ns = 0;  // 0: it goes on
};

// A job of which incidents came lately, and how many.
struct AlarmingJob {
  std::string tenant;
  std::string job;
  int64_t incidents = 0;
};

class AlertBook {
 public:
  virtual ~AlertBook() = default;
  virtual Result<std::vector<AlarmingJob>> AlarmingJobs(int64_t within_s) = 0;
  // One that is there and goes on gets the words.
  virtual Status Begin(const FleetAlert& alert) = 0;
  virtual Status End(const FleetAlert& alert) = 0;
  // Its end need not be told any more.
  virtual Status Settle(const FleetAlert& alert) = 0;
  // That are not settled, the oldest first.
  virtual Result<std::vector<FleetAlert>> Open() = 0;
};

[[nodiscard]] std::unique_ptr<AlertBook> MakeAlertBook(const std::string& connection);

}  // namespace nanwatch
