// SPDX-License-Identifier: Apache-2.0
// Lets a Python of 3.14 or later load the library by itself: sys.remote_exec (PEP 768) has it run a
// script between two of its instructions. It is not stopped, and one that is blocked in a call
// outside Python runs the script when it comes back.
#pragma once

#include <chrono>
#include <string>

#include "tools/environment_block.h"
#include "tools/late_call.h"

namespace nanwatch {

// The script that the process runs. It takes itself away first, calls the library, writes one line
// into the file of answers, "attach N" (shim/entry/attach.h) or "error ...", where that is still
// there, and lets nothing escape.
[[nodiscard]] std::string RemoteScript(const LateCall& call, const std::string& script_path);

// Asks process `pid` to run the script at `script_path`, by `python`, an interpreter of the very
// same version: the process's own. "" when it will, or a sentence.
[[nodiscard]] std::string AskRemoteExec(const std::string& python, int pid,
                                        const std::string& script_path,
                                        const EnvironmentBlock& outside,
                                        std::chrono::milliseconds limit);

}  // namespace nanwatch
