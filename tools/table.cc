// SPDX-License-Identifier: Apache-2.0
#include "tools/table.h"

#include <algorithm>

#include "daemon/report/cell_text.h"

namespace nanwatch {
namespace {

std::string Pad(const std::string& text, size_t width, bool right) {
  const std::string blanks(width - std::min(width, CellsOf(text)), ' ');
  return right ? blanks + text : text + blanks;
}

}  // namespace

std::string FormatTable(const std::vector<Column>& columns,
                        const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : columns) lines[0].push_back(column.title);
  lines.insert(lines.end(), rows.begin(), rows.end());
  std::vector<size_t> widths(columns.size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < columns.size(); ++i) widths[i] = std::max(widths[i], CellsOf(line[i]));
  }
  std::string text;
  for (const auto& line : lines) {
    std::string out;
    for (size_t i = 0; i < columns.size(); ++i) {
      out += (i == 0 ? "" : "  ") + Pad(line[i], widths[i], columns[i].right);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + "\n";
  }
  return text;
}

std::string FormatAge(uint64_t age_ns) {
  const uint64_t seconds = age_ns / 1'000'000'000;
  if (seconds < 100) return std::to_string(seconds) + " s";
  if (seconds < 100 * 60) return std::to_string(seconds / 60) + " min";
  if (seconds < 48 * 3600) return std::to_string(seconds / 3600) + " h";
  return std::to_string(seconds / 86400) + " d";
}

}  // namespace nanwatch
