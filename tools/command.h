// SPDX-License-Identifier: Apache-2.0
// Finds the program that a command names, as execvp would. So a command that cannot run is reported
// before anything starts.
#pragma once

#include <string>
#include <string_view>

namespace nanwatch {

struct CommandLookup {
  int exit_code = 0;    // 0, kExitNotExecutable or kExitNotFound
  std::string path;     // the file that would be executed, when exit_code is 0
  std::string message;  // what is wrong and what to do, else ""
};

// `name` as typed; `search_path` the value of PATH.
[[nodiscard]] CommandLookup FindCommand(const std::string& name, std::string_view search_path);

// The same for an errno that execve itself returned.
[[nodiscard]] CommandLookup ExplainExecFailure(const std::string& name, int error);

}  // namespace nanwatch
