// SPDX-License-Identifier: Apache-2.0
// Starts other programs. The only file of the tools that forks.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "daemon/base/unique_fd.h"

namespace nanwatch {

struct ProcessStart {
  static constexpr int kOurs = -1;     // the child gets the descriptor that we have
  static constexpr int kNothing = -2;  // /dev/null

  std::vector<std::string> argv = {};
  std::vector<std::string> environment = {};  // "NAME=value"
  bool looks_in_path = false;                 // argv[0] may be a name in PATH; else it is a path
  int in = kOurs;
  int out = kOurs;
  int err = kOurs;
  bool only_these_descriptors = false;  // all others are closed
  // Signals that the child blocks, and what it does at SIGCHLD; null: as we do.
  const sigset_t* blocked = nullptr;
  const struct sigaction* at_child_end = nullptr;
};

struct StartedProcess {
  pid_t pid = -1;
  int error = 0;  // errno of pipe, fork or exec, 0 when it runs
};

// Returns once the exec has succeeded or failed.
[[nodiscard]] StartedProcess StartProcess(const ProcessStart& start);

// Waits until it has ended: its wait status, nothing when somebody else took that.
std::optional<int> AwaitProcess(pid_t pid);

// A pipe whose ends exec closes, and which are no standard descriptors even where we have none.
struct Pipe {
  UniqueFd reading;
  UniqueFd writing;
};
// The errno of a failure is left in `error`.
[[nodiscard]] std::optional<Pipe> MakePipe(int& error);

}  // namespace nanwatch
