// SPDX-License-Identifier: Apache-2.0
#include "shim/check/kernels.h"

namespace nanwatch {
namespace {

bool Equals(const char* a, const char* b) noexcept { return __builtin_strcmp(a, b) == 0; }

}  // namespace

// The compiler's run-time support asks both the processor and, by XGETBV, whether the operating
// system saves the wide registers; under valgrind, which knows no AVX-512, it sees what valgrind
// offers.
const Kernels* ChooseKernels(const char* force) noexcept {
  // We may run in a constructor, before that support's own.
  __builtin_cpu_init();
  // Its scan multiplies and adds, too.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  if (force != nullptr && Equals(force, "scalar")) return &kScalarKernels;
  if (force != nullptr && Equals(force, "avx2") && avx2) return &kAvx2Kernels;
  return avx512 ? &kAvx512Kernels : avx2 ? &kAvx2Kernels : &kScalarKernels;
}

}  // namespace nanwatch
