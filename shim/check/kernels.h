// SPDX-License-Identifier: Apache-2.0
// What one instruction set offers: the loops over elements that lie side by side, one per element
// type.
//
// Each level is one source file compiled with that level's flags, which defines one table. Such a
// file must not emit a single function with external linkage: the linker would keep one copy of an
// inline function for the whole program, perhaps the one that needs the wider instruction set. So
// everything in it, and in the headers written for it, stands in an anonymous namespace, and it
// includes no header of the standard library that holds functions.
// tests/shim/check/kernel_symbols_test.cmake looks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/wire/record.h"
#include "shim/check/magnitude.h"

namespace nanwatch {

// What a pass over elements adds up. The finite figures count parts: two for each complex element.
struct Tally {
  uint64_t nan = 0;
  uint64_t pos_inf = 0;
  uint64_t neg_inf = 0;
  uint64_t finite_parts = 0;
  int64_t key_min = INT64_MAX;  // FloatFormat::ToKey of the smallest and the largest finite part
  int64_t key_max = INT64_MIN;
  double sum = 0;         // may overflow for float64
  double sum_scaled = 0;  // the sum of the parts times kSumScale, float64 only; cannot overflow
  size_t first_bad = SIZE_MAX;  // position, among the elements of the call, of the first bad one
};
inline constexpr double kSumScale = 0x1p-64;

struct Kernels {
  const char* name;
  // `count` elements from `data`, any alignment.
  Magnitude (*look[wire::kElementTypeCount])(const void* data, size_t count);
  uint8_t (*kinds[wire::kElementTypeCount])(const void* data, size_t count);
  // Adds to `tally`, except first_bad, which is set if the call meets a bad element.
  void (*tally[wire::kElementTypeCount])(const void* data, size_t count, Tally* tally);
  double (*key_to_double[wire::kElementTypeCount])(int64_t key);
};

extern const Kernels kScalarKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

// The best level that this processor and operating system can run, or `force` if they can run it.
[[nodiscard]] const Kernels* ChooseKernels(const char* force) noexcept;

// The table that InitScan chose.
[[nodiscard]] const Kernels& ChosenKernels() noexcept;

}  // namespace nanwatch
