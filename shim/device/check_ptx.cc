// SPDX-License-Identifier: Apache-2.0
#include "shim/device/check_ptx.h"

// check_kernel.ptx as it stands, in read-only memory, with a zero behind it. The build names the
// file.
__asm__(
    "  .pushsection .rodata\n"
    "  .globl kNanwatchCheckPtxBegin\n"
    "  .hidden kNanwatchCheckPtxBegin\n"
    "  .type kNanwatchCheckPtxBegin, %object\n"
    "kNanwatchCheckPtxBegin:\n"
    "  .incbin \"" NANWATCH_CHECK_PTX
    "\"\n"
    "  .globl kNanwatchCheckPtxEnd\n"
    "  .hidden kNanwatchCheckPtxEnd\n"
    "  .type kNanwatchCheckPtxEnd, %object\n"
    "kNanwatchCheckPtxEnd:\n"
    "  .byte 0\n"
    "  .popsection\n");
extern "C" {
extern const char kNanwatchCheckPtxBegin[];
extern const char kNanwatchCheckPtxEnd[];
}

namespace nanwatch::device {

KernelText CheckPtx() noexcept {
  return {kNanwatchCheckPtxBegin,
          static_cast<size_t>(kNanwatchCheckPtxEnd - kNanwatchCheckPtxBegin)};
}

}  // namespace nanwatch::device
