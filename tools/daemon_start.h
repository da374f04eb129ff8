// SPDX-License-Identifier: Apache-2.0
// Whether the user's daemon is running, and how to start it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "tools/environment_block.h"
#include "tools/installation.h"

namespace nanwatch {

// The pid of the daemon that holds the lock of `segment_dir`; nothing if none does. 0: it is in a
// pid namespace that we cannot see into.
[[nodiscard]] std::optional<pid_t> RunningDaemon(const std::string& segment_dir);

// Starts the daemon in the background and waits until it holds its lock. The daemon exits when it
// has had nothing to do for a while. Returns "", or a sentence that says what went wrong (the
// daemon's own words, if it had any). It gets our environment without the preload library, no
// terminal, and none of our descriptors: a pipe behind `nanwatch run` must see its end when the job
// is over, not when the daemon is.
[[nodiscard]] std::string StartDaemon(const Installation& installation,
                                      const EnvironmentBlock& outside,
                                      const std::string& segment_dir);

}  // namespace nanwatch
