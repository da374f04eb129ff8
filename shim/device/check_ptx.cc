#include "shim/device/check_ptx.h"

// check_kernel.ptx as it stands, in read-only memory, with a zero behind it. The build names the
// file.
__asm__(
    "  .pushsection .rodata\n"
    "  .globl nanwatch_check_ptx_begin\n"
    "  .hidden nanwatch_check_ptx_begin\n"
    "  .type nanwatch_check_ptx_begin, %object\n"
    "nanwatch_check_ptx_begin:\n"
    "  .incbin \"" NANWATCH_CHECK_PTX
    "\"\n"
    "  .globl nanwatch_check_ptx_end\n"
    "  .hidden nanwatch_check_ptx_end\n"
    "  .type nanwatch_check_ptx_end, %object\n"
    "nanwatch_check_ptx_end:\n"
    "  .byte 0\n"
    "  .popsection\n");
extern "C" {
extern const char nanwatch_check_ptx_begin[];
extern const char nanwatch_check_ptx_end[];
}

namespace nanwatch::device {

KernelText CheckPtx() noexcept {
  return {nanwatch_check_ptx_begin,
          static_cast<size_t>(nanwatch_check_ptx_end - nanwatch_check_ptx_begin)};
}

}  // namespace nanwatch::device
