// SPDX-License-Identifier: Apache-2.0
// The user's daemon as the tool sees it: is one running, and how to have one.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "tools/environment_block.h"
#include "tools/installation.h"

namespace nanwatch {

// The pid of the daemon that holds the lock of `segment_dir`; nothing when none does. 0: one that
// lives in a pid namespace that we cannot see into.
[[nodiscard]] std::optional<pid_t> RunningDaemon(const std::string& segment_dir);

// Starts the daemon in the background, to leave again when it has had nothing to do for a while,
// and waits until it has taken its lock. "" or a sentence that says what went wrong (its own words,
// where it said any). It gets our environment without the preload library, no terminal, and none of
// our descriptors: a pipe behind `nanwatch run` must see its end when the job is over, not when the
// daemon is.
[[nodiscard]] std::string StartDaemon(const Installation& installation,
                                      const EnvironmentBlock& outside,
                                      const std::string& segment_dir);

}  // namespace nanwatch
