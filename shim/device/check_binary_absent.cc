// SPDX-License-Identifier: Apache-2.0
// Where the build found no assembler.
#include "shim/device/check_binary.h"

namespace nanwatch::device {

const void* CheckBinary() noexcept { return nullptr; }

}  // namespace nanwatch::device
