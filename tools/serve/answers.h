// SPDX-License-Identifier: Apache-2.0
// What `nanwatch serve` answers, path by path. Reads what `ps`, `top` and `report` read, and keeps an
// answer for a moment, so that many readers cost what one does.
//
//   /  /runs/ID  /metrics  /api/v1/runs  /api/v1/runs/ID/verdict  /api/v1/runs/ID/page  /healthz
//
// Any thread. Metrics and the list of runs never wait for a page that is being made.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tools/environment_block.h"
#include "tools/observations.h"
#include "tools/serve/http_server.h"
#include "tools/serve/run_table.h"

namespace nanwatch {

class Answers {
 public:
  Answers() = default;

  [[nodiscard]] HttpAnswer Answer(const HttpRequest& request);

 private:
  // What is read from one database file; made anew when another one has its name.
  struct Source {
    explicit Source(Places places) : observations(std::move(places)), table(observations) {}
    Observations observations;
    RunTable table;
    uint64_t device = 0, inode = 0;
  };
  struct JobAnswers {
    uint64_t made_ns = 0;
    std::string verdict, page, plain_text;
  };

  // Both with their mutex held.
  void RenewTable();
  const JobAnswers& OfJob(const std::string& job);

  [[nodiscard]] HttpAnswer Metrics(const HttpRequest& request);
  [[nodiscard]] HttpAnswer RunList();
  [[nodiscard]] HttpAnswer Health();
  [[nodiscard]] HttpAnswer OfRun(const std::string& name, const std::string& what);

  SystemClock clock_;
  std::mutex table_mutex_;
  std::unique_ptr<Source> source_;
  uint64_t renewed_ns_ = 0;
  std::string open_metrics_, text_metrics_, run_list_;  // "": not made since

  std::mutex jobs_mutex_;
  std::unique_ptr<Source> jobs_source_;
  std::map<std::string, JobAnswers> jobs_;
};

}  // namespace nanwatch
