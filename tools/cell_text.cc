#include "tools/cell_text.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace nanwatch {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

// The blocks that matter, not the whole of Unicode's table: a mistake costs a cut or padded cell,
// because the screen does not wrap lines.
constexpr std::array<Range, 3> kNone = {{{0x300, 0x36f}, {0x200b, 0x200f}, {0xfe00, 0xfe0f}}};
constexpr std::array<Range, 9> kTwo = {{{0x1100, 0x115f},
                                        {0x2e80, 0xa4cf},
                                        {0xac00, 0xd7a3},
                                        {0xf900, 0xfaff},
                                        {0xfe30, 0xfe6f},
                                        {0xff00, 0xff60},
                                        {0xffe0, 0xffe6},
                                        {0x1f300, 0x1faff},
                                        {0x20000, 0x3fffd}}};

template <size_t kSize>
bool IsIn(const std::array<Range, kSize>& ranges, uint32_t character) {
  return std::any_of(ranges.begin(), ranges.end(), [character](const Range& range) {
    return character >= range.first && character <= range.last;
  });
}

// Takes the first character off `text`; a broken one is its first byte.
uint32_t TakeCharacter(std::string_view& text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  size_t bytes = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  bytes = std::min(bytes, text.size());
  uint32_t character = bytes == 1 ? lead : lead & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    character = character << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
  }
  text.remove_prefix(bytes);
  return character;
}

size_t CellsOfCharacter(uint32_t character) {
  if (IsIn(kNone, character)) return 0;
  return IsIn(kTwo, character) ? 2 : 1;
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

}  // namespace

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
    const uint32_t character = TakeCharacter(text);
    ascii += character < 0x80 ? static_cast<char>(character) : '?';
  }
  return ascii;
}

}  // namespace nanwatch
