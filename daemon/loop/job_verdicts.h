// SPDX-License-Identifier: Apache-2.0
// Keeps each job's incidents and warnings in the store up to date with its facts, and reports what
// is new. One owner, on the loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "daemon/loop/listener.h"
#include "daemon/store/store.h"
#include "verdict.pb.h"

namespace nanwatch {

// Diagnose() of daemon/explain, or a test's.
using Diagnosis = std::function<Verdict(const std::vector<RunFacts>&)>;

class JobVerdicts {
 public:
  JobVerdicts(Diagnosis diagnosis, const Clock& clock, Listener& listener)
      : diagnosis_(std::move(diagnosis)), clock_(clock), listener_(listener) {}

  // Something new was committed about the job: its verdict is due soon.
  void Touch(const std::string& job);

  // Renews the verdicts that are due (`all`: every touched job's). A failed write is repeated
  // later.
  void Renew(Store& store, bool all);

  [[nodiscard]] bool has_pending() const { return !due_.empty(); }
  // Monotonic; UINT64_MAX when none is pending.
  [[nodiscard]] uint64_t next_due_ns() const;

 private:
  // What was reported about an incident.
  struct Reported {
    size_t reach_count = 0;
    std::string severity;
  };
  struct Job {
    bool loaded = false;
    uint64_t cost_ns = 0;  // of the latest renewal
    uint64_t renewed_at_ns = 0;
    std::map<std::string, Reported> reported;  // by what makes incidents the same
    // How many of each family: a warning that is first reported as exploding may become diverging.
    std::map<std::string, size_t> warnings_reported;
  };

  Status RenewOne(const std::string& name, Job& job, Store& store);
  static Status LoadReported(const std::string& name, Job& job, const Store& store);
  void ReportIncidents(Job& job, const Verdict& verdict);
  void ReportWarnings(Job& job, const Verdict& verdict);

  Diagnosis diagnosis_;
  const Clock& clock_;
  Listener& listener_;
  std::map<std::string, uint64_t> due_;  // monotonic, by job
  std::map<std::string, Job> jobs_;
};

}  // namespace nanwatch
