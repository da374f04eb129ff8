// SPDX-License-Identifier: Apache-2.0
// What tells one launch from another that has the same job id, on hosts that cannot ask each other.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// The words of the process's environment that all ranks of a launch share: the cluster and when the
// scheduler started the job, the rendezvous of torchrun. One line; "" where the process has none,
// is gone, or is another user's. A launch that was given none may share "" with others.
[[nodiscard]] std::string LaunchOfProcess(const Run& run);

// The same for an environment, NAME=value entries that end with NUL.
[[nodiscard]] std::string LaunchOfEnvironment(const std::string& entries);

}  // namespace nanwatch
