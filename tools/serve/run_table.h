// SPDX-License-Identifier: Apache-2.0
// The runs as metrics and lists show them: live ones from their segments, others from the database,
// or from the segment that no daemon has read yet.
// Made to be asked for once a second: of a segment only the live block and the last steps are read,
// and of the database what may have changed.
//
// One owner, not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "tools/observations.h"

namespace nanwatch {

inline constexpr int kTableRunsMax = 200;  // newest first; live ones first of all

struct TableRun {
  std::string id;
  std::string job;
  Run run;
  RunState state;
  bool live = false;
  int64_t step = -1;
  std::optional<double> loss, gradient_norm, scale;  // the newest known
  std::string state_text;                            // StateOf
};

struct TableJob {
  std::vector<Incident> incidents;
  std::vector<Warning> warnings;
};

// The job of the one run or job whose id begins with `name`; kNotFound or kAmbiguous. `runs`: their
// ids and jobs.
[[nodiscard]] Result<std::string> JobOfName(
    const std::vector<std::pair<std::string, std::string>>& runs, const std::string& name);

class RunTable {
 public:
  explicit RunTable(Observations& observations) : observations_(observations) {}

  // Reads anew.
  void Refresh();
  [[nodiscard]] const std::vector<TableRun>& runs() const { return runs_; }
  [[nodiscard]] const std::map<std::string, TableJob>& jobs() const { return jobs_; }
  [[nodiscard]] const Status& database_status() const { return database_status_; }

 private:
  void ReadStored();
  void ReadJobs(uint64_t now_real_ns);

  SystemClock clock_;
  Observations& observations_;
  std::vector<TableRun> runs_;
  std::vector<TableRun> stored_;  // as the database had them at `change_`
  std::map<std::string, TableJob> jobs_;
  std::optional<int64_t> change_;
  bool changed_ = true;
  Status database_status_;
};

}  // namespace nanwatch
