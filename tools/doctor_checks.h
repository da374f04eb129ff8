// What `doctor` looks at, each answer a line that says what to do.
#pragma once

#include <string>
#include <vector>

namespace nanwatch {

enum class Health { kOk, kWarn, kFail };

struct Check {
  std::string name;
  Health health;
  std::string text;
};
using Checks = std::vector<Check>;

// Everything that decides whether a job of `named_python` ("": the one on PATH) started with our
// environment would be observed. Runs that Python once; makes the state directory, as the daemon
// would; changes nothing else.
[[nodiscard]] Checks Examine(const std::string& named_python);

}  // namespace nanwatch
