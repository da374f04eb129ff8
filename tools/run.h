// SPDX-License-Identifier: Apache-2.0
// The verb `run`: starts a command under observation, and reports at its end what was seen.
#pragma once

#include "tools/job_launch.h"

namespace nanwatch {

// Does not return if the command was started: the process ends as the command did. Otherwise an
// exit code.
int RunCommand(const RunOptions& options);

}  // namespace nanwatch
