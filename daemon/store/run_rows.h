// SPDX-License-Identifier: Apache-2.0
// The rows of runs, and which of them is meant: by id, by the beginning of one, by job. All other
// tables name a run by its key, a small number that only the database knows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/store/sqlite.h"
#include "daemon/store/store.h"

namespace nanwatch {

// kNotFound when there is no such run.
[[nodiscard]] Result<int64_t> KeyOfRun(const Database& database, const std::string& run_id);
[[nodiscard]] Result<RunRow> ReadRun(const Database& database, const std::string& run_id);

// As Store has them.
[[nodiscard]] Result<std::vector<RunRow>> ReadRuns(const Database& database,
                                                   const RunFilter& filter);
[[nodiscard]] Result<std::string> ResolveRun(const Database& database, const std::string& prefix);
[[nodiscard]] Result<std::vector<std::string>> RunsOfJob(const Database& database,
                                                         const std::string& job);

}  // namespace nanwatch
