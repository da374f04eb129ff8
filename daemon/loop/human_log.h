// SPDX-License-Identifier: Apache-2.0
// nanwatch.log: what happened, in words, for a person who tails it, and on stderr while the daemon
// is in the foreground. Adapter to spdlog.
#pragma once

#include <memory>
#include <string>

#include "daemon/loop/listener.h"

namespace nanwatch {

// `to_stderr`: write there as well. If the file cannot be written, nothing is logged; that never
// stops the daemon.
[[nodiscard]] std::unique_ptr<Log> MakeHumanLog(std::string path, bool to_stderr);

// "full, was idle: requested", "auto: one step in 9 in full; expected to cost 0.90 %, the budget is
// 1.00 %".
[[nodiscard]] std::string LevelSentence(const LevelFact& level);

}  // namespace nanwatch
