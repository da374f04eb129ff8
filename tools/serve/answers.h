// SPDX-License-Identifier: Apache-2.0
// What `nanwatch serve` answers, path by path. Reads what `ps`, `top` and `report` read.
//
//   /  /runs/ID  /metrics  /api/v1/runs  /api/v1/runs/ID/verdict  /api/v1/runs/ID/page  /healthz
//
// A thread of its own reads runs anew once a second while somebody asks, and everybody gets what it
// read last, so that many readers cost what one does and none waits for the disk. Only the first
// after a pause waits. Answers about one job are kept for two seconds.
//
// Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/http/http_server.h"
#include "tools/serve/run_table.h"

namespace nanwatch {

class Answers {
 public:
  Answers();
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;
  ~Answers();

  [[nodiscard]] HttpAnswer Answer(const HttpRequest& request);

 private:
  // Of all runs, at one moment.
  struct OfAllRuns {
    uint64_t made_ns = 0;
    std::string open_metrics, text_metrics, run_list;
    std::vector<std::pair<std::string, std::string>> names;  // ids of runs and jobs
    Status database_status;
  };
  struct OfOneJob {
    uint64_t made_ns = 0;
    std::string verdict, page, plain_text;
  };
  class Reader;

  [[nodiscard]] std::shared_ptr<const OfAllRuns> AllRuns();
  [[nodiscard]] const OfOneJob& OneJob(const std::string& job);  // with jobs_mutex_ held
  [[nodiscard]] HttpAnswer Health();
  [[nodiscard]] HttpAnswer OfRun(const std::string& name, const std::string& what);
  void ReadWhileAsked();

  SystemClock clock_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const OfAllRuns> all_runs_;
  bool wanted_ = false;
  bool stopping_ = false;

  std::mutex jobs_mutex_;
  std::map<std::string, OfOneJob> jobs_;

  std::thread reader_;  // last: it uses the others
};

}  // namespace nanwatch
