// SPDX-License-Identifier: Apache-2.0
// How the making of a segment tells what went wrong: in a sentence, without allocating or throwing.
#pragma once

#include <cstddef>

namespace nanwatch {

// What became of a request. `message` is "" or one sentence without a final newline, fit to be
// shown to the user after "nanwatch: "; with ok it is a remark.
struct SegmentReport {
  bool ok = false;
  char message[640] = "";

  // Makes it a failure, with a message as printf would make it.
  void Fail(const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));
  // Keeps `ok`, sets the message.
  void Remark(const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));
};

// The system's words for an errno; `buffer` is used if they have to be made.
const char* ErrorText(int error, char* buffer, size_t size) noexcept;

}  // namespace nanwatch
