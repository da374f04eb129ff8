// SPDX-License-Identifier: Apache-2.0
// The scan of float32 and float64 by arithmetic: one instruction for a vector, of which two begin
// in a cycle. Only for scan_avx2.cc; see kernels.h for why nothing here has linkage.
//
// A running sum of everything times zero: zero as long as all values are finite, else NaN. That is
// arithmetic in the job's thread, so its floating-point modes and flags are set aside meanwhile: a
// trap would end the job, a sticky flag would be seen. Subnormals count as zero, because some
// processors are slow to multiply them.
//
// Such a sum tells nothing of magnitudes. One turn in 37 is therefore looked at by bits instead:
// the largest of a sample, for 3 % of the price of looking at all. A prime, so that the sample
// moves over all columns of a matrix whose rows are a power of two long, or three times one.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "shim/check/magnitude.h"

namespace nanwatch {
namespace {

struct Float64Lanes {
  using Vector = __m256d;
  static Vector AddTimesZero(const char* at, Vector zero, Vector sum) {
    return _mm256_fmadd_pd(zero, _mm256_loadu_pd(reinterpret_cast<const double*>(at)), sum);
  }
  static Vector Add(Vector a, Vector b) { return _mm256_add_pd(a, b); }
  static bool AnyNaN(Vector sum) {
    return _mm256_movemask_pd(_mm256_cmp_pd(sum, sum, _CMP_UNORD_Q)) != 0;
  }
};

struct Float32Lanes {
  using Vector = __m256;
  static Vector AddTimesZero(const char* at, Vector zero, Vector sum) {
    return _mm256_fmadd_ps(zero, _mm256_loadu_ps(reinterpret_cast<const float*>(at)), sum);
  }
  static Vector Add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static bool AnyNaN(Vector sum) {
    return _mm256_movemask_ps(_mm256_cmp_ps(sum, sum, _CMP_UNORD_Q)) != 0;
  }
};

// `Bits` is the scan by bits of the same format (vector_scan.h).
template <class Lanes, class Bits>
struct ArithmeticScan {
  using Vector = typename Lanes::Vector;
  static constexpr size_t kStep = sizeof(Vector);
  static constexpr size_t kTurnBytes = 16 * kStep;
  static constexpr size_t kPeriodTurns = 37;
  static constexpr size_t kLookBytes =
      4 * kPeriodTurns * kTurnBytes;                // how often to look at the sums
  static constexpr size_t kWorthwhileBytes = 2048;  // below it, the modes cost more than is saved

  // At least a turn. What is told of finite values is kAtLeast.
  static Magnitude Run(const char* at, size_t bytes) {
    constexpr unsigned kAllMaskedNoSubnormals = 0x1fc0;
    const unsigned modes = _mm_getcsr();
    _mm_setcsr(kAllMaskedNoSubnormals);
    const char* end = at + bytes;
    typename Bits::Vector sample = Bits::Look(at);
    bool bad = false;
    do {
      const size_t left = static_cast<size_t>(end - at);
      // The last turn may overlap the one before: looking twice changes nothing.
      const char* from = left < kTurnBytes ? end - kTurnBytes : at;
      const size_t length = left < kTurnBytes   ? kTurnBytes
                            : left < kLookBytes ? left / kTurnBytes * kTurnBytes
                                                : kLookBytes;
      at = from + length;
      bad = IsBad(from, at, &sample);
    } while (!bad && at != end);
    _mm_setcsr(modes);
    if (bad) return {0, Magnitude::Kind::kNonFinite};
    Magnitude magnitude = Bits::Tell(sample);
    if (magnitude.kind == Magnitude::Kind::kLargest) magnitude.kind = Magnitude::Kind::kAtLeast;
    return magnitude;
  }

 private:
  // The empty instructions keep the compiler, to which modes mean nothing, from moving arithmetic
  // across, and from knowing that it multiplies by zero.
  static void Fence(Vector& sum) { asm volatile("" : "+x"(sum)); }

  // Eight chains: a multiply-add has a latency of four, and two begin in a cycle.
  [[gnu::always_inline]] static inline void Turn(const char* at, Vector zero, Vector (&sums)[8]) {
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; ++i) {
      sums[i % 8] = Lanes::AddTimesZero(at + i * kStep, zero, sums[i % 8]);
    }
  }

  [[gnu::noinline]] static bool IsBad(const char* at, const char* end,
                                      typename Bits::Vector* sample) {
    Vector sums[8] = {}, zero{};
    for (Vector& sum : sums) Fence(sum);
    Fence(zero);
    while (at != end) {
      *sample = Bits::Max(*sample, Bits::template LookAll<kTurnBytes>(at));
      at += kTurnBytes;
      size_t turns = std::min(static_cast<size_t>(end - at) / kTurnBytes, kPeriodTurns - 1);
      for (; turns >= 4; turns -= 4) {
#pragma GCC unroll 4
        for (int turn = 0; turn < 4; ++turn) Turn(at + turn * kTurnBytes, zero, sums);
        at += 4 * kTurnBytes;
      }
      for (; turns != 0; --turns, at += kTurnBytes) Turn(at, zero, sums);
    }
    auto& [a, b, c, d, e, f, g, h] = sums;
    Vector sum = Lanes::Add(Lanes::Add(Lanes::Add(a, b), Lanes::Add(c, d)),
                            Lanes::Add(Lanes::Add(e, f), Lanes::Add(g, h)));
    Fence(sum);
    return Lanes::AnyNaN(sum) || Bits::IsBad(*sample);
  }
};

}  // namespace
}  // namespace nanwatch
