// SPDX-License-Identifier: Apache-2.0
// Lines of a report: a label, and text that wraps under itself. Any text may come from the job, so
// none is trusted: control characters, which a terminal would obey, are made visible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/report/cell_text.h"

namespace nanwatch {

inline constexpr int kLabelColumns = 10;

// Columns that the name of a layer or parameter may take.
inline constexpr size_t kLayerColumnsMax = 56;

// At most `columns_max` columns, the middle replaced by "..." when it is longer: the ends of a
// module path say the most.
[[nodiscard]] std::string Shorten(std::string_view text, size_t columns_max);

// As many of its first words as fit into `columns_max`, with "..." for the others; "" where not even
// one fits.
[[nodiscard]] std::string FirstWords(std::string_view text, size_t columns_max);

// 61204 -> "61,204".
[[nodiscard]] std::string Grouped(uint64_t number);

// 0.0312345 -> "0.03123"; NaN and Inf as words.
[[nodiscard]] std::string Brief(double number);

// "2026-11-23T21:40:02.123Z" -> "2026-11-23 21:40:02", which is in UTC.
[[nodiscard]] std::string DayAndTime(const std::string& rfc3339);

// "1 step", "2 steps".
[[nodiscard]] std::string Counted(uint64_t number, std::string_view singular);

// `text` that Row() keeps on one line: a command that people copy.
[[nodiscard]] std::string Glued(std::string text);
// The same text where nothing is laid out: a line of its own.
[[nodiscard]] std::string Unglued(std::string text);

// label, padded, then the text word-wrapped at `width_columns`; further lines are indented. Ends
// with a newline.
[[nodiscard]] std::string Row(std::string_view label, std::string_view text, int width_columns);

}  // namespace nanwatch
