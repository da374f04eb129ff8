// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/api/frame_layout.h"

#include <cstdint>

namespace nanwatch {
namespace {

// From the headers of 3.10.13, 3.11.7 and 3.12.1 (cpython/pystate.h, frameobject.h, code.h,
// internal/pycore_frame.h) by offsetof on a 64-bit build; they are the same in every patch release.
constexpr FrameLayout kLayout310{.thread_frame = 24,
                                 .frame_code = 32,
                                 .frame_previous = 24,
                                 .frame_instruction = 96,
                                 .frame_locals = 352,
                                 .code_filename = 104,
                                 .code_name = 112,
                                 .code_first_line = 40,
                                 .code_arg_count = 16,
                                 .code_local_names = 72,
                                 .tuple_items = 24};
constexpr FrameLayout kLayout311{.thread_frame = 56,
                                 .cframe_frame = 8,
                                 .frame_code = 32,
                                 .frame_previous = 48,
                                 .frame_instruction = 56,
                                 .frame_owner = 69,
                                 .frame_locals = 72,
                                 .code_filename = 112,
                                 .code_name = 120,
                                 .code_first_line = 72,
                                 .code_arg_count = 56,
                                 .code_instructions = 184,
                                 .code_local_names = 96,
                                 .tuple_items = 24};
constexpr FrameLayout kLayout312{.thread_frame = 56,
                                 .cframe_frame = 0,
                                 .frame_code = 0,
                                 .frame_previous = 8,
                                 .frame_instruction = 56,
                                 .frame_owner = 70,
                                 .frame_locals = 72,
                                 .code_filename = 112,
                                 .code_name = 120,
                                 .code_first_line = 68,
                                 .code_arg_count = 52,
                                 .code_instructions = 192,
                                 .code_local_names = 96,
                                 .tuple_items = 24};

// Where _Py_DebugOffsets, the 64-bit words at the start of _PyRuntime, says what
// (internal/pycore_runtime.h of 3.13.0, internal/pycore_debug_offsets.h of 3.14). Word 0 is the
// cookie, 1 the version, 2 says whether it is free-threaded.
struct PublishedWords {
  int thread_frame, frame_previous, frame_code, frame_instruction, frame_locals, frame_owner;
  int code_filename, code_name, code_first_line, code_arg_count, code_local_names,
      code_instructions;
  int object_size, tuple_items;
};
constexpr PublishedWords kWords313{.thread_frame = 23,
                                   .frame_previous = 29,
                                   .frame_code = 30,
                                   .frame_instruction = 31,
                                   .frame_locals = 32,
                                   .frame_owner = 33,
                                   .code_filename = 35,
                                   .code_name = 36,
                                   .code_first_line = 39,
                                   .code_arg_count = 40,
                                   .code_local_names = 41,
                                   .code_instructions = 43,
                                   .object_size = 44,
                                   .tuple_items = 51};
constexpr PublishedWords kWords314{.thread_frame = 26,
                                   .frame_previous = 32,
                                   .frame_code = 33,
                                   .frame_instruction = 34,
                                   .frame_locals = 35,
                                   .frame_owner = 36,
                                   .code_filename = 40,
                                   .code_name = 41,
                                   .code_first_line = 44,
                                   .code_arg_count = 45,
                                   .code_local_names = 46,
                                   .code_instructions = 48,
                                   .object_size = 50,
                                   .tuple_items = 57};

bool ReadPublishedLayout(const PythonApi& api, FrameLayout* layout) noexcept {
  if (api.runtime == nullptr || memcmp(api.runtime, "xdebugpy", 8) != 0) return false;
  const auto word = [&api](int i) { return ReadAt<uint64_t>(api.runtime, 8 * i); };
  // The version as PY_VERSION_HEX has it: 0x030D00F0.
  if ((word(1) >> 24) != 3 || static_cast<int>((word(1) >> 16) & 0xFF) != api.minor || word(2) != 0)
    return false;
  const PublishedWords& words = api.minor == 13 ? kWords313 : kWords314;
  if (word(words.object_size) != sizeof(PyObj)) return false;
  bool plausible = true;
  const auto offset = [&](int i) {
    plausible = plausible && word(i) < 4096;
    return static_cast<int>(word(i));
  };
  *layout = FrameLayout{.thread_frame = offset(words.thread_frame),
                        .frame_code = offset(words.frame_code),
                        .frame_previous = offset(words.frame_previous),
                        .frame_instruction = offset(words.frame_instruction),
                        .frame_owner = offset(words.frame_owner),
                        .frame_locals = offset(words.frame_locals),
                        .code_filename = offset(words.code_filename),
                        .code_name = offset(words.code_name),
                        .code_first_line = offset(words.code_first_line),
                        .code_arg_count = offset(words.code_arg_count),
                        .code_instructions = offset(words.code_instructions),
                        .code_local_names = offset(words.code_local_names),
                        .tuple_items = offset(words.tuple_items)};
  return plausible;
}

}  // namespace

bool FrameLayout::Find(const PythonApi& api, FrameLayout* layout) noexcept {
  switch (api.minor) {
    case 10:
      *layout = kLayout310;
      return true;
    case 11:
      *layout = kLayout311;
      return true;
    case 12:
      *layout = kLayout312;
      return true;
    default:
      return ReadPublishedLayout(api, layout);
  }
}

}  // namespace nanwatch
