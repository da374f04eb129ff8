// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/api/error_text.h"

#include <algorithm>
#include <cstddef>

namespace nanwatch {
namespace {

constexpr size_t kBytesMax = size_t{64} << 10;

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }

bool Is(std::string_view word, std::string_view wanted) {
  return std::equal(word.begin(), word.end(), wanted.begin(), wanted.end(),
                    [](char a, char b) { return Lower(a) == b; });
}

// "finite" is that of "non-finite", "not finite", "must be finite".
bool IsNonFinite(std::string_view word) {
  constexpr std::string_view kWords[] = {"nan",      "nans",     "inf",       "infs",
                                         "infinity", "infinite", "nonfinite", "finite"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [word](std::string_view wanted) { return Is(word, wanted); });
}

}  // namespace

bool SpeaksOfNonFinite(std::string_view message) noexcept {
  message = message.substr(0, kBytesMax);
  std::string_view before;
  for (size_t at = 0; at < message.size();) {
    size_t end = at;
    while (end < message.size() && IsLetter(Lower(message[end]))) ++end;
    const std::string_view word = message.substr(at, end - at);
    if (IsNonFinite(word)) return true;
    // A distribution says so of its arguments.
    if (Is(word, "values") && Is(before, "invalid")) return true;
    if (!word.empty()) before = word;
    at = std::max(end, at + 1);
  }
  return false;
}

}  // namespace nanwatch
