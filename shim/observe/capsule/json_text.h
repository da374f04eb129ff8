// SPDX-License-Identifier: Apache-2.0
// Writes JSON, for the manifest of a capsule. The caller keeps the order right: Key before each
// value of an object, Open and Close in pairs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nanwatch {

class JsonText {
 public:
  JsonText& Open(char bracket);   // '{' or '['
  JsonText& Close(char bracket);  // '}' or ']'
  JsonText& Key(std::string_view name);
  // Bytes that are no UTF-8 become U+FFFD.
  JsonText& Text(std::string_view text);
  JsonText& Integer(int64_t number);
  JsonText& Bool(bool value);
  JsonText& Null();
  // What reads as the same number again: "0.1", "1e+300", "NaN", "-Infinity", as a string.
  JsonText& NumberText(double number);

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void Separate();

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace nanwatch
