// SPDX-License-Identifier: Apache-2.0
// The verdict for a job as the verbs show it: the diagnosis, with how the command ended.
#pragma once

#include <optional>
#include <vector>

#include "daemon/explain/explain.h"
#include "daemon/store/store.h"
#include "verdict.pb.h"

namespace nanwatch {

// The diagnosis, and the command's end where it belongs: the process with its pid, a job of one
// process, and the headline run, unless that process still runs.
[[nodiscard]] Verdict VerdictOfJob(const std::vector<RunFacts>& facts,
                                   const std::optional<JobExit>& exit,
                                   const std::vector<UnwatchedProcess>& unwatched = {});
[[nodiscard]] Diagnosed DiagnosisOfJob(const std::vector<RunFacts>& facts,
                                       const std::optional<JobExit>& exit,
                                       const DiagnosisRequest& request);

// A process of the job has not ended.
[[nodiscard]] bool StillRuns(const std::vector<RunFacts>& facts);

// `report --check`: kExitOk, kExitAnomaly or kExitCannotTell.
[[nodiscard]] int CheckExitCode(const Verdict& verdict);

}  // namespace nanwatch
