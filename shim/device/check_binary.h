// SPDX-License-Identifier: Apache-2.0
// The kernels as the build's assembler has made them: for several architectures in one image, of
// which the driver takes what fits. Where it takes none (it is older than the assembler, or the
// GPU newer) it compiles their text (check_ptx.h), which takes a second or two.
#pragma once

namespace nanwatch::device {

// An image for cuModuleLoadData, or null: there was no assembler where this was built.
[[nodiscard]] const void* CheckBinary() noexcept;

}  // namespace nanwatch::device
