// SPDX-License-Identifier: Apache-2.0
#include "shim/device/check_binary.h"

// The fat binary as it stands, in read-only memory. The build names the file.
__asm__(
    "  .pushsection .rodata\n"
    "  .balign 16\n"
    "  .globl kNanwatchCheckBinary\n"
    "  .hidden kNanwatchCheckBinary\n"
    "  .type kNanwatchCheckBinary, %object\n"
    "kNanwatchCheckBinary:\n"
    "  .incbin \"" NANWATCH_CHECK_BINARY
    "\"\n"
    "  .popsection\n");
extern "C" {
extern const char kNanwatchCheckBinary[];
}

namespace nanwatch::device {

const void* CheckBinary() noexcept { return kNanwatchCheckBinary; }

}  // namespace nanwatch::device
