// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/capsule/json_text.h"

#include <cmath>
#include <cstdio>
#include <cstring>

namespace nanwatch {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

// Bytes of the UTF-8 sequence that `text` begins with; 0: it begins with none (RFC 3629).
size_t SequenceAt(std::string_view text) {
  const auto byte = [text](size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
  };
  const auto follows = [&byte](size_t at) { return (byte(at) & 0xC0u) == 0x80u; };
  const unsigned first = byte(0);
  const unsigned second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && second < 0xA0;
    const bool surrogate = first == 0xED && second > 0x9F;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && second < 0x90;
    const bool too_large = first == 0xF4 && second > 0x8F;
    return follows(1) && follows(2) && follows(3) && !overlong && !too_large ? 4 : 0;
  }
  return 0;
}

void AppendEscaped(std::string_view text, std::string* out) {
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    const size_t bytes = SequenceAt(text);
    if (bytes == 0) {
      *out += kReplacement;
    } else if (first == '"' || first == '\\') {
      *out += '\\';
      *out += text[0];
    } else if (first < 0x20) {
      char escaped[8];
      (void)std::snprintf(escaped, sizeof escaped, "\\u%04x", first);
      *out += escaped;
    } else {
      out->append(text.substr(0, bytes));
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
}

}  // namespace

void JsonText::Separate() {
  if (needs_comma_) text_ += ',';
  needs_comma_ = true;
}

JsonText& JsonText::Open(char bracket) {
  Separate();
  text_ += bracket;
  needs_comma_ = false;
  return *this;
}

JsonText& JsonText::Close(char bracket) {
  text_ += bracket;
  needs_comma_ = true;
  return *this;
}

JsonText& JsonText::Key(std::string_view name) {
  Text(name);
  text_ += ':';
  needs_comma_ = false;
  return *this;
}

JsonText& JsonText::Text(std::string_view text) {
  Separate();
  text_ += '"';
  AppendEscaped(text, &text_);
  text_ += '"';
  return *this;
}

JsonText& JsonText::Integer(int64_t number) {
  Separate();
  text_ += std::to_string(number);
  return *this;
}

JsonText& JsonText::Bool(bool value) {
  Separate();
  text_ += value ? "true" : "false";
  return *this;
}

JsonText& JsonText::Null() {
  Separate();
  text_ += "null";
  return *this;
}

JsonText& JsonText::NumberText(double number) {
  if (std::isnan(number)) return Text("NaN");
  if (std::isinf(number)) return Text(number > 0 ? "Infinity" : "-Infinity");
  char digits[40];
  (void)std::snprintf(digits, sizeof digits, "%.17g", number);
  // The point is what the job's locale has.
  std::string text;
  for (const char* at = digits; *at != '\0'; ++at) {
    if (std::strchr("0123456789+-e", *at) != nullptr) {
      text += *at;
    } else if (text.empty() || text.back() != '.') {
      text += '.';
    }
  }
  return Text(text);
}

}  // namespace nanwatch
