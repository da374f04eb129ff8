// SPDX-License-Identifier: Apache-2.0
// Judges one job after another in a thread of its own, from a connection of its own that only
// reads: the verdict of a large job takes seconds, and the loop drains other jobs' segments
// meanwhile.
//
// All calls are made on the loop's thread. What is passed by reference outlives the judge.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/status.h"
#include "verdict.pb.h"

namespace nanwatch {

// Diagnose() of daemon/explain, or a test's.
using Diagnosis = std::function<Verdict(const std::vector<RunFacts>&)>;

// A job's most important incidents; what a storm of places makes beyond is counted in its sites.
inline constexpr int kIncidentsPerJobMax = 2'000;

class Judge {
 public:
  struct Judgment {
    std::string job;
    uint64_t generation = 0;  // as it was begun with
    Result<Verdict> verdict;
  };

  // How a thread is started; throws std::system_error where there is none to be had.
  using StartThread = std::function<std::thread(std::function<void()> work)>;
  static std::thread StartOne(std::function<void()> work) { return std::thread(std::move(work)); }

  explicit Judge(Diagnosis diagnosis, StartThread start_thread = StartOne)
      : diagnosis_(std::move(diagnosis)), start_thread_(std::move(start_thread)) {}
  Judge(const Judge&) = delete;
  Judge& operator=(const Judge&) = delete;
  // Waits for the job that is being judged.
  ~Judge();

  // Begins with `job`, whose facts are in that database, the caller's `generation`. Only when not
  // busy. The first call starts the thread; where it cannot be started, that is the judgment.
  void Begin(const std::string& database, const std::string& job, uint64_t generation = 0);

  // The judgment of the job that was begun, once: waits at most so long for it.
  [[nodiscard]] std::optional<Judgment> Take(uint64_t patience_ns);

  // Whether a job was begun whose judgment was not taken yet.
  [[nodiscard]] bool is_busy() const { return busy_; }

 private:
  struct Request {
    std::string database;
    std::string job;
    uint64_t generation = 0;
  };

  void Work();
  [[nodiscard]] Result<Verdict> JudgeOne(const Request& request) const noexcept;
  [[nodiscard]] Result<Verdict> DoJudge(const Request& request) const;

  Diagnosis diagnosis_;
  StartThread start_thread_;
  bool busy_ = false;  // the loop's thread only

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::optional<Request> request_;
  std::optional<Judgment> judgment_;
  bool stop_ = false;

  std::thread thread_;
};

}  // namespace nanwatch
