// SPDX-License-Identifier: Apache-2.0
// nanwatch.log: what happened, in words, for the person who tails it; and on stderr while the
// daemon is in the foreground. The door to spdlog.
#pragma once

#include <memory>
#include <string>

#include "daemon/loop/listener.h"

namespace nanwatch {

// `to_stderr`: there as well. Where the file cannot be written it says nothing; it never stops the
// daemon.
[[nodiscard]] std::unique_ptr<Log> MakeHumanLog(std::string path, bool to_stderr);

// "full, was idle: asked for", "auto: one step in 9 in full, the others canary; expected to cost
// 0.9 % of 1.0 %".
[[nodiscard]] std::string LevelSentence(const LevelFact& level);

}  // namespace nanwatch
