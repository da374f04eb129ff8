// SPDX-License-Identifier: Apache-2.0
// What nanwatch-gather answers, path by path.
//
//   POST /v1/logs    GET /metrics  /healthz  and what fleet_answers.h has
//
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "daemon/gather/fleet_answers.h"
#include "daemon/gather/row_queue.h"
#include "daemon/http/http_server.h"

namespace nanwatch {

class GatherAnswers {
 public:
  // `report` gets a sentence the first time that something goes wrong in a way, and once when it is
  // well again.
  GatherAnswers(RowQueue& queue, FleetAnswers& fleet,
                std::function<void(const std::string&)> report)
      : queue_(queue), fleet_(fleet), report_(std::move(report)) {}

  [[nodiscard]] HttpAnswer Answer(const HttpRequest& request);
  // A request was answered so, by whomever. What is refused for good is counted, and reported the
  // first time in each way. Any thread.
  void OnFailure(int status);

 private:
  [[nodiscard]] HttpAnswer TakeLogs(const HttpRequest& request);
  [[nodiscard]] HttpAnswer Metrics() const;
  [[nodiscard]] HttpAnswer Health() const;
  void Note(const Status& status);

  RowQueue& queue_;
  FleetAnswers& fleet_;
  std::function<void(const std::string&)> report_;
  std::atomic<bool> in_trouble_{false};
  std::atomic<bool> said_rejected_{false};
  std::atomic<bool> said_missing_{false};
  std::atomic<uint64_t> requests_{0};
  std::atomic<uint64_t> requests_refused_{0};
  std::mutex mutex_;
  std::set<int> said_refused_;         // statuses
  std::atomic<uint64_t> rejected_{0};  // records that are no rows
  std::atomic<uint64_t> held_missing_{0};
};

}  // namespace nanwatch
