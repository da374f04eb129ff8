// SPDX-License-Identifier: Apache-2.0
// What is answered about the jobs of a fleet.
//
//   GET /api/v1/jobs   /api/v1/jobs/ID/verdict
//
// A verdict is the document of one host with a member `fleet` more; asked for as
// application/x-protobuf it is a FleetVerdict. It is kept for two seconds.
//
// Any thread; one question at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/gather/fleet_reader.h"
#include "daemon/http/http_server.h"
#include "fleet.pb.h"

namespace nanwatch {

class FleetAnswers {
 public:
  // `reader` may be null: then the answer says how to get one.
  FleetAnswers(std::unique_ptr<FleetReader> reader, const Clock& clock)
      : reader_(std::move(reader)), clock_(clock) {}

  // For a path that begins with /api/v1/jobs.
  [[nodiscard]] HttpAnswer Answer(const HttpRequest& request);

 private:
  struct Kept {
    uint64_t made_ns = 0;
    FleetVerdict verdict;
  };

  [[nodiscard]] HttpAnswer Jobs();
  [[nodiscard]] HttpAnswer VerdictOf(const std::string& job, const std::string& accept);
  [[nodiscard]] Result<const FleetVerdict*> Judge(const std::string& job);

  std::mutex mutex_;
  std::unique_ptr<FleetReader> reader_;
  const Clock& clock_;
  std::map<std::string, Kept> kept_;
};

}  // namespace nanwatch
