// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/text_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "daemon/base/digits.h"

namespace nanwatch {
namespace {

// Stands for a space at which no line breaks. Printable() lets none through from the job.
constexpr char kGlue = '\x1f';

}  // namespace

std::string Shorten(std::string_view text, size_t columns_max) {
  if (columns_max < 8 || CellsOf(text) <= columns_max) return std::string(text);
  const size_t head = (columns_max - 3) / 2;
  return fmt::format("{}...{}", FirstCells(text, head), LastCells(text, columns_max - 3 - head));
}

std::string FirstWords(std::string_view text, size_t columns_max) {
  constexpr std::string_view kMore = " ...";
  if (CellsOf(text) <= columns_max) return std::string(text);
  const size_t room = columns_max - std::min(columns_max, kMore.size());
  size_t end = FirstCells(text, room).size();
  if (text[end] != ' ') end = text.substr(0, end).rfind(' ');
  // What begins with a comma has a blank behind it and no word before that.
  if (end == std::string_view::npos || text.substr(0, end).find_first_not_of(" ,;") == text.npos)
    return "";
  return std::string(text.substr(0, end)).append(kMore);
}

std::string Grouped(uint64_t number) { return GroupDigits(std::to_string(number)); }

std::string Brief(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Inf" : "-Inf";
  return fmt::format("{:.4g}", number);
}

std::string DayAndTime(const std::string& rfc3339) {
  if (rfc3339.size() < 19 || rfc3339[10] != 'T') return Printable(rfc3339);
  return Printable(rfc3339.substr(0, 10) + " " + rfc3339.substr(11, 8));
}

std::string Counted(uint64_t number, std::string_view singular) {
  return Grouped(number) + " " + std::string(singular) + (number == 1 ? "" : "s");
}

std::string Unglued(std::string text) {
  std::replace(text.begin(), text.end(), kGlue, ' ');
  return text;
}

std::string Glued(std::string text) {
  std::replace(text.begin(), text.end(), ' ', kGlue);
  return text;
}

std::string Row(std::string_view label, std::string_view text, int width_columns) {
  const std::string indent(kLabelColumns, ' ');
  const auto width = static_cast<size_t>(std::max(width_columns, 2 * kLabelColumns));
  std::string rows(label);
  rows.resize(std::max<size_t>(kLabelColumns, label.size() + 1), ' ');
  size_t column = rows.size();
  bool line_is_empty = true;
  size_t blanks = 0;  // before the next word; those at the end of a line are dropped
  while (!text.empty()) {
    const size_t gap = text.find(' ');
    const std::string_view word = text.substr(0, gap);
    if (!word.empty()) {
      if (!line_is_empty && column + blanks + CellsOf(word) > width) {
        rows += "\n" + indent;
        column = indent.size();
        blanks = 0;
      }
      rows.append(blanks, ' ') += word;
      column += blanks + CellsOf(word);
      blanks = 0;
      line_is_empty = false;
    }
    if (gap != std::string_view::npos) ++blanks;
    text.remove_prefix(gap == std::string_view::npos ? text.size() : gap + 1);
  }
  std::replace(rows.begin(), rows.end(), kGlue, ' ');
  return rows + "\n";
}

}  // namespace nanwatch
