// SPDX-License-Identifier: Apache-2.0
// Text by its characters, and measured in the cells of a terminal: most characters take one, CJK and
// emoji two, combining marks none. Without a locale, so that it is the same in every process and
// test. Adapter to utf8proc.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nanwatch {

// `text` with every character that a terminal obeys or that cannot be seen (controls, marks that turn
// the direction of text), and every byte that is not UTF-8, replaced by '?'.
[[nodiscard]] std::string Printable(std::string_view text);

// For the others, `text` must be what Printable() gives.
[[nodiscard]] size_t CellsOf(std::string_view text);

// As much of its beginning, and of its end, as fits into `cells`.
[[nodiscard]] std::string_view FirstCells(std::string_view text, size_t cells);
[[nodiscard]] std::string_view LastCells(std::string_view text, size_t cells);

// The beginning of `text` that fits into `cells`, "..." at its end when something was cut off and
// there is room for that.
[[nodiscard]] std::string CutToCells(std::string_view text, size_t cells);

// `text` cut to `cells`, and filled up with blanks.
[[nodiscard]] std::string FillCells(std::string_view text, size_t cells, bool right);

// `text` with a '?' for every character that is not ASCII, for terminals that show no others.
[[nodiscard]] std::string AsciiOf(std::string_view text);

}  // namespace nanwatch
