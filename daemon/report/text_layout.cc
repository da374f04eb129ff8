#include "daemon/report/text_layout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace nanwatch {
namespace {

// Stands for a space at which no line breaks. Printable() lets none through from the job.
constexpr char kGlue = '\x1f';

// Bytes of the UTF-8 character that starts here, 0 when none does.
size_t CharacterBytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t bytes = lead < 0x80                   ? 1
                       : lead >= 0xc2 && lead < 0xe0 ? 2
                       : lead >= 0xe0 && lead < 0xf0 ? 3
                       : lead >= 0xf0 && lead < 0xf5 ? 4
                                                     : 0;
  if (bytes == 0 || bytes > text.size()) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

bool IsControl(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead < 0x20 || lead == 0x7f;
  // C1 controls, U+0080 to U+009F, and the marks that turn the direction of text.
  const auto second = static_cast<unsigned char>(character[1]);
  if (lead == 0xc2 && second < 0xa0) return true;
  return character.starts_with("\xe2\x80") && static_cast<unsigned char>(character[2]) >= 0x8b;
}

size_t Columns(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
  }));
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string printable;
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const std::string_view character = text.substr(0, std::max<size_t>(bytes, 1));
    if (bytes == 0 || IsControl(character)) {
      printable += '?';
    } else {
      printable += character;
    }
    text.remove_prefix(character.size());
  }
  return printable;
}

std::string Shorten(std::string_view text, size_t columns_max) {
  if (text.size() <= columns_max || columns_max < 8) return std::string(text);
  const size_t head = (columns_max - 3) / 2;
  const size_t tail = columns_max - 3 - head;
  const std::string cut =
      std::string(text.substr(0, head)) + "..." + std::string(text.substr(text.size() - tail));
  return Printable(cut);  // a character may have been cut in two
}

std::string Grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string Brief(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Inf" : "-Inf";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", number);
  return text.data();
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
  while (!text.empty()) {
    const size_t gap = text.find(' ');
    const std::string_view word = text.substr(0, gap);
    if (!line_is_empty && column + 1 + Columns(word) > width) {
      rows += "\n" + indent;
      column = indent.size();
      line_is_empty = true;
    }
    if (!line_is_empty) rows += ' ', ++column;
    rows += word;
    column += Columns(word);
    line_is_empty = false;
    text.remove_prefix(gap == std::string_view::npos ? text.size() : gap + 1);
  }
  std::replace(rows.begin(), rows.end(), kGlue, ' ');
  return rows + "\n";
}

}  // namespace nanwatch
