// SPDX-License-Identifier: Apache-2.0
// Keeps each job's incidents and warnings in the store up to date with its facts, and reports what
// is new. One owner, on the loop's thread; the judging itself is a Judge's.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "daemon/loop/judge.h"
#include "daemon/loop/listener.h"
#include "daemon/store/store.h"
#include "verdict.pb.h"

namespace nanwatch {

class JobVerdicts {
 public:
  // A call of Renew waits so long for judgments; one that takes longer is taken by a later call.
  // The default suits tests: each job is judged when Renew returns.
  static constexpr uint64_t kWait = std::numeric_limits<uint64_t>::max();

  JobVerdicts(Diagnosis diagnosis, const Clock& clock, Listener& listener,
              uint64_t patience_ns = kWait)
      : judge_(std::move(diagnosis)),
        clock_(clock),
        listener_(listener),
        patience_ns_(patience_ns) {}

  // Something new was committed about the job: its verdict is due soon.
  void Touch(const std::string& job);

  // Renews the verdicts that are due (`all`: every touched job's, however long it takes). The first
  // failure is returned, reported once a minute, and its job tried again: after a second, or nine
  // times what the failure cost, and twice as long after each further one, up to ten minutes. A job
  // of which a row makes no sense is named, and not judged before something new is known of it.
  Status Renew(Store& store, bool all);

  // Waits for the judge, which reads the files of the database, for at most ten seconds. The job
  // that it judges stays due.
  void DrainJudge();

  // Another database takes the place of the one that was judged: what was due in that one is due no
  // more, and no judgment of it is kept. Drains the judge.
  void ForgetStore();

  [[nodiscard]] bool has_pending() const { return !due_.empty() || judge_.is_busy(); }
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
    uint64_t begun_at_ns = 0;
    uint64_t cost_ns = 0;  // of the latest renewal, or try
    int failures = 0;      // in a row
    uint64_t renewed_at_ns = 0;
    std::map<std::string, Reported> reported;  // by what makes incidents the same
    // How many of each family: a warning that is first reported as exploding may become diverging.
    std::map<std::string, size_t> warnings_reported;
  };

  [[nodiscard]] uint64_t RemainingPatience(uint64_t begun_ns) const;
  bool BeginNext(const Store& store, bool all);
  Status Keep(const Judge::Judgment& judgment, Store& store);
  Status TryKeep(const Judge::Judgment& judgment, Store& store);
  [[nodiscard]] uint64_t AfterFailure(Job& job) const;
  void ReportFailure(const std::string& name, const Status& why);
  static Status LoadReported(const std::string& name, Job& job, const Store& store);
  void ReportIncidents(Job& job, const Verdict& verdict);
  void ReportWarnings(Job& job, const Verdict& verdict);

  Judge judge_;
  const Clock& clock_;
  Listener& listener_;
  uint64_t patience_ns_;
  uint64_t generation_ = 0;  // of the store
  uint64_t reported_failure_at_ns_ = 0;
  std::map<std::string, uint64_t> due_;  // monotonic, by job
  std::map<std::string, Job> jobs_;
};

}  // namespace nanwatch
