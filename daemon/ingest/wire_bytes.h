// SPDX-License-Identifier: Apache-2.0
// Structs and texts out of bytes that another process has written.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "proto/wire/text.h"

namespace nanwatch {

// The struct of a record's kind out of its bytes, or nothing when there are too few.
template <typename T>
std::optional<T> Take(const unsigned char* record, size_t bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (bytes < sizeof(T)) return {};
  T out;
  std::memcpy(&out, record, sizeof(T));
  return out;
}

// Up to the zero byte, if there is one; what no terminal or document should get is replaced.
template <size_t N>
std::string TextIn(const char (&text)[N]) {
  return wire::CleanText(std::string_view(text, strnlen(text, N)), N);
}

}  // namespace nanwatch
