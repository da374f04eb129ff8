// SPDX-License-Identifier: Apache-2.0
// Reports to the daemon how a command ended, which no segment can: the file <job>.exit next to the
// segments.
//
//   {"job": "3f9c...", "pid": 4711, "exit_code": 1, "signal": null,
//    "ended_real_ns": 1795257546123000000}
//
// If several `nanwatch run` share a job and the first one's file is still there, the next writes
// <job>.<pid>.exit. It is written under another name first, so a reader finds all of it or nothing.
// The daemon removes it once it is in the database.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "daemon/base/status.h"
#include "tools/child.h"

namespace nanwatch {

[[nodiscard]] std::string JobExitText(const std::string& job, pid_t pid, const CommandEnd& end,
                                      uint64_t ended_real_ns);

Status WriteJobExit(const std::string& segment_dir, const std::string& job, pid_t pid,
                    const CommandEnd& end, uint64_t ended_real_ns);

}  // namespace nanwatch
