// SPDX-License-Identifier: Apache-2.0
// The kernels' text, for the driver to compile: nanwatch_check_few, nanwatch_check_many
// (check_launch.h), nanwatch_check_list (list_launch.h), nanwatch_check_batch (batch_launch.h), ...
// PTX ISA 6.0 for sm_70.
#pragma once

#include <cstddef>

namespace nanwatch::device {

struct KernelText {
  const char* text;   // ends with a zero, as cuModuleLoadData wants it
  size_t text_bytes;  // without the zero
};

[[nodiscard]] KernelText CheckPtx() noexcept;

}  // namespace nanwatch::device
