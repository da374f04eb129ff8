// Text measured in the cells of a terminal: most characters take one, CJK and emoji two, combining
// marks none. Without a locale, so that it is the same in every process and test.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nanwatch {

// `text` must be what Printable() of daemon/report/text_layout.h gives.
[[nodiscard]] size_t CellsOf(std::string_view text);

// The beginning of `text` that fits into `cells`, "..." at its end when something was cut off and
// there is room for that.
[[nodiscard]] std::string CutToCells(std::string_view text, size_t cells);

// `text` cut to `cells`, and filled up with blanks.
[[nodiscard]] std::string FillCells(std::string_view text, size_t cells, bool right);

// `text` with a '?' for every character that is not ASCII, for terminals that show no others.
[[nodiscard]] std::string AsciiOf(std::string_view text);

}  // namespace nanwatch
