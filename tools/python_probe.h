// SPDX-License-Identifier: Apache-2.0
// What a Python says about its torch, without importing it: an import takes seconds and may fail.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/environment_block.h"
#include "tools/installation.h"

namespace nanwatch {

struct PythonProbe {
  std::string problem;         // a sentence if this Python did not answer, else ""
  std::string executable;      // as it names itself
  std::string python_version;  // 3.11.2
  std::string torch_version;   // 2.11.0+cpu; "" when it has no torch
  std::string torch_dir;
  std::string glibc;        // 2.36, that the job has; "" where there is another libc
  std::string interpreter;  // the dynamic loader; "" for a static Python
};

[[nodiscard]] PythonProbe ProbePython(const std::string& python, const EnvironmentBlock& outside);

// "2.11" of "2.11.0+cpu"; "" when it is no version.
[[nodiscard]] std::string MinorOf(const std::string& torch_version);

// The minor version that an observer's file name says, "2.11" of "libnanwatch_observer-2.11.so"; ""
// for other files.
[[nodiscard]] std::string ObserverMinor(const std::string& file_name);

// Those of the observers that are installed.
[[nodiscard]] std::vector<std::string> ObserverMinors(const Installation& installation);

}  // namespace nanwatch
