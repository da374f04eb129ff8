// The verdict for a job as the verbs show it: the diagnosis, with how the command ended.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "daemon/store/store.h"
#include "verdict.pb.h"

namespace nanwatch {

// Diagnose(), and the command's end where it belongs: the process with its pid, a job of one process, and the
// headline run, unless that process still runs. `further_rules` of the user's hold beside those that the job
// was started with.
[[nodiscard]] Verdict VerdictOfJob(const std::vector<RunFacts>& facts,
                                   const std::optional<JobExit>& exit,
                                   std::string_view further_rules = {});

// `report --check`: kExitOk, kExitAnomaly or kExitCannotTell.
[[nodiscard]] int CheckExitCode(const Verdict& verdict);

}  // namespace nanwatch
