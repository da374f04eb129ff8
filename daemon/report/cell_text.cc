// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/cell_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>

namespace nanwatch {
namespace {

constexpr int32_t kNone = -1;  // no character: a byte that is not UTF-8

// Takes the first character off `text`, or a byte.
int32_t TakeCharacter(std::string_view& text) {
  utf8proc_int32_t character = kNone;
  const utf8proc_ssize_t bytes =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                       static_cast<utf8proc_ssize_t>(text.size()), &character);
  text.remove_prefix(bytes > 0 ? static_cast<size_t>(bytes) : 1);
  return bytes > 0 ? character : kNone;
}

bool IsSeen(int32_t character) {
  switch (utf8proc_category(character)) {
    case UTF8PROC_CATEGORY_CC:  // controls
    case UTF8PROC_CATEGORY_CF:  // formats: direction, joiners
    case UTF8PROC_CATEGORY_ZL:  // line and paragraph separators
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

// Controls have no width of their own; where our own text has one, a blank takes its place.
size_t CellsOfCharacter(int32_t character) {
  if (character == kNone || utf8proc_category(character) == UTF8PROC_CATEGORY_CC) return 1;
  return static_cast<size_t>(utf8proc_charwidth(character));
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string printable;
  while (!text.empty()) {
    const std::string_view before = text;
    const int32_t character = TakeCharacter(text);
    if (character == kNone || !IsSeen(character)) {
      printable += '?';
    } else {
      printable += before.substr(0, before.size() - text.size());
    }
  }
  return printable;
}

std::string_view FirstCells(std::string_view text, size_t cells) {
  std::string_view rest = text;
  size_t used = 0;
  while (!rest.empty()) {
    std::string_view after = rest;
    used += CellsOfCharacter(TakeCharacter(after));
    if (used > cells) break;
    rest = after;
  }
  return text.substr(0, text.size() - rest.size());
}

std::string_view LastCells(std::string_view text, size_t cells) {
  size_t left = CellsOf(text);
  while (left > cells) left -= CellsOfCharacter(TakeCharacter(text));
  return text;
}

size_t CellsOf(std::string_view text) {
  size_t cells = 0;
  while (!text.empty()) cells += CellsOfCharacter(TakeCharacter(text));
  return cells;
}

std::string CutToCells(std::string_view text, size_t cells) {
  constexpr std::string_view kDots = "...";
  if (CellsOf(text) <= cells) return std::string(text);
  if (cells < 2 * kDots.size()) return std::string(FirstCells(text, cells));
  return std::string(FirstCells(text, cells - kDots.size())) + std::string(kDots);
}

std::string FillCells(std::string_view text, size_t cells, bool right) {
  const std::string cut = CutToCells(text, cells);
  const std::string blanks(cells - CellsOf(cut), ' ');
  return right ? blanks + cut : cut + blanks;
}

std::string AsciiOf(std::string_view text) {
  std::string ascii;
  while (!text.empty()) {
    const int32_t character = TakeCharacter(text);
    ascii += character >= 0 && character < 0x80 ? static_cast<char>(character) : '?';
  }
  return ascii;
}

}  // namespace nanwatch
