// SPDX-License-Identifier: Apache-2.0
// How commands ended, and for which runs this is known. An exit may be stored before its run, so
// writing a run also checks here.
#pragma once

#include <optional>
#include <string>

#include "daemon/base/status.h"
#include "daemon/ingest/exit_file.h"
#include "daemon/store/sqlite.h"
#include "verdict.pb.h"

namespace nanwatch {

void SetExit(RunState& state, const JobExit& exit);

// Inside a transaction: keeps it for the job, and for the job's runs of that pid.
Status WriteExit(const Database& database, const JobExit& exit);
// That of the job's command which is this run; nullopt: none is known.
[[nodiscard]] Result<std::optional<JobExit>> FindExit(const Database& database,
                                                      const std::string& job, const Run& run);
// The job's last one.
[[nodiscard]] Result<std::optional<JobExit>> FindLastExit(const Database& database,
                                                          const std::string& job);

}  // namespace nanwatch
