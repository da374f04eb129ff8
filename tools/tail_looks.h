// SPDX-License-Identifier: Apache-2.0
// What `tail` prints at each look: what is new of the jobs, each line once.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "tools/tail_lines.h"
#include "tools/tail_source.h"
#include "verdict.pb.h"

namespace nanwatch {

class TailLooks {
 public:
  // `lines_first`: of the first look only so many lines are given, the last.
  TailLooks(TailSource& source, int lines_first, bool json)
      : source_(source), lines_first_(lines_first), json_(json) {}

  [[nodiscard]] bool IsFirstLook() const { return first_look_; }

  // The lines of what is new of `jobs`, and of those in `ended` the incidents, once. What the
  // database has of a job and could not be read comes at a later look, and incidents not before.
  [[nodiscard]] std::string Next(const std::set<std::string>& jobs,
                                 const std::set<std::string>& ended);

  // Of the last look: why something is missing that the database has, else ok.
  [[nodiscard]] const Status& missing() const { return missing_; }

 private:
  // What was given of a run.
  struct Given {
    uint64_t last_ticket = 0;  // all up to it were
    // Beyond: those of its segment that were given while the database, which may have earlier ones,
    // could not be read.
    std::set<uint64_t> ahead;
    size_t warnings = 0;
  };

  void Collect(const RunFacts& facts, bool is_whole, std::vector<TailEntry>& entries);
  void CollectWarnings(const RunFacts& facts, size_t first_of_run, Given& given,
                       std::vector<TailEntry>& entries) const;
  void CollectIncidents(const std::string& job, const std::vector<RunFacts>& facts,
                        std::vector<TailEntry>& entries);

  TailSource& source_;
  int lines_first_;
  bool json_;
  std::map<std::string, Given> given_;  // by run
  std::set<std::string> concluded_;
  std::set<std::string> settled_;
  Status missing_;
  bool first_look_ = true;
};

}  // namespace nanwatch
