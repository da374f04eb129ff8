// SPDX-License-Identifier: Apache-2.0
// Offers the scan_avx512.cc of this test program, which is compiled over emulated operations, and
// no other.
#include "shim/check/kernels.h"
#include "tests/property/check/level_and_type.h"

namespace nanwatch {

const Kernels* ChooseKernels(const char*) noexcept { return &kAvx512Kernels; }

std::vector<const char*> TestedLevels() { return {"avx512"}; }
std::string TestedLevelPrefix() { return "emulated_"; }

}  // namespace nanwatch
