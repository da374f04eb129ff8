// SPDX-License-Identifier: Apache-2.0
// Where things stand in a frame of Python's, and in its code object. The layouts of 3.10 to 3.12 are
// written down here; 3.13 and later publish theirs in _PyRuntime.
#pragma once

#include <cstring>

#include "shim/observe/python/api/python_api.h"

namespace nanwatch {

// Byte offsets; -1 where that version has no such field.
struct FrameLayout {
  int thread_frame = -1;  // in the thread state: the frame, or the C frame
  int cframe_frame = -1;  // in the C frame: the frame (3.11, 3.12)
  int frame_code = -1;
  int frame_previous = -1;
  int frame_instruction = -1;  // pointer into the code (3.11 on), or an int in code units (3.10)
  int frame_owner = -1;
  int frame_locals = -1;
  int code_filename = -1;
  int code_name = -1;
  int code_first_line = -1;
  int code_arg_count = -1;
  int code_instructions = -1;
  int code_local_names = -1;  // a tuple, in the order of the frame's locals
  int tuple_items = -1;

  // That of the Python that runs. False: it does not say.
  [[nodiscard]] static bool Find(const PythonApi& api, FrameLayout* layout) noexcept;
};

// A field at such an offset.
template <typename T>
T ReadAt(const void* base, int offset) noexcept {
  T value;
  memcpy(&value, static_cast<const unsigned char*>(base) + offset, sizeof value);
  return value;
}

}  // namespace nanwatch
