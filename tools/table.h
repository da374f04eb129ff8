// SPDX-License-Identifier: Apache-2.0
// Columns of text for a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nanwatch {

struct Column {
  std::string title;
  bool right = false;  // numbers stand at the right
};

// Every row has as many cells as there are columns. Two blanks between columns, none at a line's
// end.
[[nodiscard]] std::string FormatTable(const std::vector<Column>& columns,
                                      const std::vector<std::vector<std::string>>& rows);

// "41 s", "12 min", "3 h", "5 d".
[[nodiscard]] std::string FormatAge(uint64_t age_ns);

}  // namespace nanwatch
