// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/command_line.h"

#include <regex>
#include <utility>

namespace nanwatch {

std::string PlainComplaint(const std::string& complaint) {
  // Each with what it says instead. The tests hold them against the CLI11 that is linked.
  static const std::pair<const char*, const char*> kKnown[] = {
      {R"(The following arguments? (?:was|were) not expected: (.*))",
       "unknown option or argument: $1"},
      {R"((--\S+): (?:At least )?\d+ required (.*) missing)", "$1 needs a value ($2)"},
      {R"(Could not convert: (\S+) = (.*))", "$1 is '$2', which is not a number"},
      {R"((\S+): Value (.*) not in range (\d+) to (\d+))",
       "$1 is '$2': give a number from $3 to $4"},
      {R"((\S+) excludes (\S+))", "$1 and $2 cannot be combined"},
      {R"((\S+) requires (\S+))", "$1 needs $2 as well"},
  };
  for (const auto& [pattern, plain] : kKnown) {
    std::smatch match;
    if (std::regex_match(complaint, match, std::regex(pattern))) return match.format(plain);
  }
  return complaint;
}

}  // namespace nanwatch
