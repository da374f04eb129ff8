// SPDX-License-Identifier: Apache-2.0
// What is kept of all that comes in: of each run so many records, trails, steps and snapshots of
// parameters, and so many runs. The limits stand in store.h.
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

  // `added` more rows stand there than when the run was last thinned. `run` is its key.
  Status ThinRecords(int64_t run, int64_t added);
  Status ThinSteps(int64_t run, int64_t added);
  Status ThinStats(int64_t run);
  // Gives the number that went.
  Result<int64_t> ThinTrails(int64_t run);

  // The oldest ended runs, beyond their number and where the file is nearly full.
  Status Retire();

  void Forget();

 private:
  using Counts = std::unordered_map<int64_t, int64_t>;  // rows, by the run's key

  Result<int64_t*> CountAfter(Counts& counts, const char* sql, int64_t run, int64_t added);

  const Database& database_;
  Counts record_counts_;
  Counts step_counts_;
};

}  // namespace nanwatch
