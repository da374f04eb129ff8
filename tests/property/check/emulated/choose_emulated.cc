// Offers the scan_avx512.cc of this test program, which is compiled over emulated operations, and no other.
#include "shim/check/kernels.h"

namespace nanwatch {

const Kernels* ChooseKernels(const char*) noexcept { return &kAvx512Kernels; }

}  // namespace nanwatch
