// SPDX-License-Identifier: Apache-2.0
// Rules that are given on a command line or in NANWATCH_IGNORE: the rules themselves, or '@' and
// the name of a file that holds them (daemon/explain/ignore_rules.h).
#pragma once

#include <string>
#include <vector>

namespace nanwatch {

struct IgnoreText {
  std::string text;
  // What is not applied, and why, a sentence each. Never a reason to stop: without a rule there is
  // an alarm too many, not one too few.
  std::vector<std::string> problems;
};

// The rules of all `given` options, one below the other; files are read now. "" means none.
[[nodiscard]] IgnoreText ReadIgnoreOptions(const std::vector<std::string>& given);

}  // namespace nanwatch
