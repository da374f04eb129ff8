// SPDX-License-Identifier: Apache-2.0
// What a process calls once it has the library: nanwatch_entry_attach (shim/entry/attach.h).
#pragma once

#include <string>

namespace nanwatch {

struct LateCall {
  std::string library;  // the path of libnanwatch.so
  std::string level;
  std::string directory;
  std::string answers;
};

}  // namespace nanwatch
