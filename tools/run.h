// SPDX-License-Identifier: Apache-2.0
// The verb `run`: starts a command under observation, and says at its end what was seen.
#pragma once

#include "tools/job_launch.h"

namespace nanwatch {

// Does not come back when the command was started: the process ends as the command did. Else an
// exit code.
int RunCommand(const RunOptions& options);

}  // namespace nanwatch
