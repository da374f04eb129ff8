// SPDX-License-Identifier: Apache-2.0
// The characters of a Python str, read without the GIL and without calling Python. Only compact
// strings, which is what every name and file name in a code object is.
#pragma once

#include <cstddef>

#include "shim/observe/python/api/python_api.h"

namespace nanwatch {

class PythonText {
 public:
  // GIL held: picks the layout for the running Python and proves it on strings of each width.
  bool Prove(const PythonApi& api) noexcept;

  // UTF-8 into `out`, terminated, cut at a character's border. The length; 0 for anything but a
  // compact str. No GIL.
  size_t Copy(const PyObj* text, char* out, size_t size) const noexcept;

 private:
  int ascii_offset_ = -1;    // of the characters of an ASCII string
  int compact_offset_ = -1;  // of those of any other
};

}  // namespace nanwatch
