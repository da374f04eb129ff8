// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/command_line.h"

#include <algorithm>
#include <numeric>
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

std::string NearestWord(std::string_view typed, const std::vector<std::string>& words) {
  // Edit distance, one row at a time.
  const auto distance = [](std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 0; i < a.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i + 1;
      for (size_t j = 0; j < b.size(); ++j) {
        const size_t replace = diagonal + (a[i] == b[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({replace, row[j] + 1, row[j + 1] + 1});
      }
    }
    return row.back();
  };
  std::string nearest;
  size_t nearest_distance = 3;  // more than two typing errors is another word
  for (const std::string& word : words) {
    const size_t d = distance(typed, word);
    if (d < nearest_distance && d < word.size()) {
      nearest = word;
      nearest_distance = d;
    }
  }
  return nearest;
}

}  // namespace nanwatch
