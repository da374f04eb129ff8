// SPDX-License-Identifier: Apache-2.0
#include "shim/host/segment_report.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace nanwatch {

void SegmentReport::Fail(const char* format, ...) noexcept {
  ok = false;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
}

void SegmentReport::Remark(const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
}

const char* ErrorText(int error, char* buffer, size_t size) noexcept {
  return strerror_r(error, buffer, size);  // glibc's form, which g++ selects
}

}  // namespace nanwatch
