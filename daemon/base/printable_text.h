// Text from a job on its way to a terminal, a log line or a database: the job may have written anything.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nanwatch {

// `text` as valid UTF-8 of at most `bytes_max` bytes, in which nothing steers a terminal: bytes that are not
// UTF-8, control characters (newline and tab included, C1 too) and marks that reverse the direction of
// writing become U+FFFD. Cut at a character's boundary.
[[nodiscard]] std::string PrintableText(std::string_view text, size_t bytes_max);

}  // namespace nanwatch
