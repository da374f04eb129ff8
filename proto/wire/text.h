// SPDX-License-Identifier: Apache-2.0
// Text that came out of shared memory, made fit to be stored, sent and printed on a terminal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nanwatch::wire {

// Longest text of a name, in bytes, on both sides.
inline constexpr size_t kTextBytesMax = 512;

// Length in bytes of the well-formed UTF-8 character at the start of `text`, its code point in
// `*code`; 0 if there is none (overlong forms and surrogates are not well-formed).
inline size_t Utf8CharacterBytes(std::string_view text, uint32_t* code) noexcept {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    *code = first;
    return 1;
  }
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  uint32_t value = first & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    value = value << 6 | (byte(i) & 0x3fu);
  }
  const uint32_t least = bytes == 4 ? 0x10000 : bytes == 3 ? 0x800 : 0x80;
  if (value < least || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return 0;
  *code = value;
  return bytes;
}

// The longest start of `text` of at most `bytes_max` bytes that does not end inside a character.
inline std::string_view CutText(std::string_view text, size_t bytes_max) noexcept {
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max;
  for (int back = 0; back < 3 && end > 0 && (text[end] & 0xc0) == 0x80; ++back) --end;
  return text.substr(0, (text[end] & 0xc0) == 0x80 ? bytes_max : end);
}

// Valid UTF-8 of at most `bytes_max` bytes. Ill-formed bytes, control characters, and the
// characters that break a line or turn its direction (a terminal or a log would obey them) become
// U+FFFD.
inline std::string CleanText(std::string_view text, size_t bytes_max = kTextBytesMax) {
  constexpr std::string_view kReplacement = "\xef\xbf\xbd";
  std::string clean;
  clean.reserve(std::min(text.size(), bytes_max));
  while (!text.empty()) {
    uint32_t code = 0;
    size_t bytes = Utf8CharacterBytes(text, &code);
    const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    const bool layout = (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    const bool keep = bytes > 0 && !control && !layout;
    bytes = std::max<size_t>(bytes, 1);
    const std::string_view piece = keep ? text.substr(0, bytes) : kReplacement;
    if (clean.size() + piece.size() > bytes_max) break;
    clean += piece;
    text.remove_prefix(bytes);
  }
  return clean;
}

}  // namespace nanwatch::wire
