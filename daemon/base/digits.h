// SPDX-License-Identifier: Apache-2.0
// Numbers for people.
#pragma once

#include <string>

namespace nanwatch {

// "-28752" -> "-28,752". What is no whole number stays as it is.
[[nodiscard]] inline std::string GroupDigits(std::string number) {
  const size_t first = number.starts_with('-') ? 1 : 0;
  if (number.find_first_not_of("0123456789", first) != std::string::npos) return number;
  for (size_t at = number.size(); at > first + 3; at -= 3) number.insert(at - 3, ",");
  return number;
}

}  // namespace nanwatch
