// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/torch/script_frames.h"

#include <torch/csrc/jit/runtime/interpreter.h>

namespace nanwatch {

bool IsInScript() noexcept try { return !torch::jit::currentCallstack().empty(); } catch (...) {
  return true;
}

}  // namespace nanwatch
