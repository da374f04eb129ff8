#include "daemon/base/printable_text.h"

#include <cstdint>

namespace nanwatch {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: not UTF-8 here
};

// The bounds are those of the well-formed sequences: no overlong forms, no surrogates, no code past U+10FFFF.
Character Decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto continues = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead >= 0xC2 && lead < 0xE0 && continues(1)) {
    return {(lead & 0x1Fu) << 6 | (byte(1) & 0x3Fu), 2};
  }
  if (lead >= 0xE0 && lead < 0xF0 && continues(1) && continues(2)) {
    const uint32_t code = (lead & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    if (code >= 0x800 && (code < 0xD800 || code > 0xDFFF)) return {code, 3};
  }
  if (lead >= 0xF0 && lead < 0xF5 && continues(1) && continues(2) && continues(3)) {
    const uint32_t code = (lead & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 |
                          (byte(3) & 0x3Fu);
    if (code >= 0x10000 && code <= 0x10FFFF) return {code, 4};
  }
  return {};
}

bool SteersTerminal(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string PrintableText(std::string_view text, size_t bytes_max) {
  std::string out;
  while (!text.empty()) {
    const Character character = Decode(text);
    const bool keep = character.bytes != 0 && !SteersTerminal(character.code);
    const size_t consumed = character.bytes == 0 ? 1 : character.bytes;
    const std::string_view piece = keep ? text.substr(0, consumed) : kReplacement;
    if (out.size() + piece.size() > bytes_max) break;
    out += piece;
    text.remove_prefix(consumed);
  }
  return out;
}

}  // namespace nanwatch
