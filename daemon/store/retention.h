// SPDX-License-Identifier: Apache-2.0
// Decides what is kept: how many records, trails, steps and snapshots of each run, and how many
// runs. The limits are in store.h.
//
// Rows are counted once for each run and then remembered, so that no commit has to count them.
// Every function but Retire works inside the caller's transaction; where that is not committed, or
// the keys of runs may be given to others, Forget.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "daemon/base/status.h"
#include "daemon/store/sqlite.h"

namespace nanwatch {

class Retention {
 public:
  // `database` must outlive the object.
  explicit Retention(const Database& database) : database_(database) {}

  // The run with key `run` has `added` more rows than when it was last thinned.
  Status ThinRecords(int64_t run, int64_t added);
  Status ThinSteps(int64_t run, int64_t added);
  Status ThinStats(int64_t run);
  // Returns how many were removed.
  Result<int64_t> ThinTrails(int64_t run);

  // The oldest ended runs, beyond their number and where the file is nearly full.
  Status Retire();

  void Forget();

 private:
  using Counts = std::unordered_map<int64_t, int64_t>;  // rows, by the run's key

  Result<int64_t*> CountAfter(Counts& counts, const char* sql, int64_t run, int64_t added);

  Result<int64_t> DropSteps(int64_t run, int64_t of_oldest);

  const Database& database_;
  Counts record_counts_;
  Counts step_counts_;
};

}  // namespace nanwatch
