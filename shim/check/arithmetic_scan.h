// The scan of float32 and float64 by arithmetic: one instruction for a vector where bit tests take
// two. Only for scan_avx2.cc; see kernels.h for why nothing here has linkage.
//
// A running multiply-add with zero: a finite value adds a zero, and NaN, and Inf times zero, make
// the sum NaN, which it then stays. That is arithmetic in the job's thread, so its floating-point
// modes and flags are set aside meanwhile: a trap would end the job, a sticky flag would be seen.
// Subnormals count as zero, because some processors are slow to multiply them.
#pragma once

#include <immintrin.h>

#include <cstddef>

namespace nanwatch {
namespace {

struct Float32Lanes {
  using Vector = __m256;
  static Vector MultiplyAdd(const char* at, Vector sum) {
    return _mm256_fmadd_ps(_mm256_loadu_ps(reinterpret_cast<const float*>(at)), _mm256_setzero_ps(),
                           sum);
  }
  static Vector Add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static bool AnyNan(Vector sum) {
    return _mm256_movemask_ps(_mm256_cmp_ps(sum, sum, _CMP_UNORD_Q)) != 0;
  }
};

struct Float64Lanes {
  using Vector = __m256d;
  static Vector MultiplyAdd(const char* at, Vector sum) {
    return _mm256_fmadd_pd(_mm256_loadu_pd(reinterpret_cast<const double*>(at)),
                           _mm256_setzero_pd(), sum);
  }
  static Vector Add(Vector a, Vector b) { return _mm256_add_pd(a, b); }
  static bool AnyNan(Vector sum) {
    return _mm256_movemask_pd(_mm256_cmp_pd(sum, sum, _CMP_UNORD_Q)) != 0;
  }
};

template <class Lanes>
struct ArithmeticScan {
  using Vector = typename Lanes::Vector;
  static constexpr size_t kStep = sizeof(Vector);
  static constexpr size_t kTurnBytes = 16 * kStep;
  static constexpr size_t kLookBytes = 128 * kTurnBytes;  // how often to stop and look at the sums
  static constexpr size_t kWorthwhileBytes = 2048;  // below it, the modes cost more than is saved

  // Scans turns from *at on, as many as lie before `end`, and leaves *at behind them.
  static bool Run(const char** at, const char* end) {
    constexpr unsigned kAllMaskedNoSubnormals = 0x1fc0;
    const unsigned modes = _mm_getcsr();
    _mm_setcsr(kAllMaskedNoSubnormals);
    bool bad = false;
    while (!bad && static_cast<size_t>(end - *at) >= kTurnBytes) {
      const size_t left = static_cast<size_t>(end - *at);
      const size_t bytes = left < kLookBytes ? left / kTurnBytes * kTurnBytes : kLookBytes;
      bad = Look(*at, *at + bytes);
      *at += bytes;
    }
    _mm_setcsr(modes);
    return bad;
  }

 private:
  // The empty instructions keep the compiler, to which modes mean nothing, from moving arithmetic
  // across.
  static void Fence(Vector& sum) { asm volatile("" : "+x"(sum)); }

  // Eight chains: a multiply-add has a latency of four, and two begin in a cycle.
  [[gnu::noinline]] static bool Look(const char* at, const char* end) {
    Vector a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{};
    Fence(a), Fence(b), Fence(c), Fence(d), Fence(e), Fence(f), Fence(g), Fence(h);
#pragma GCC unroll 4
    for (; at != end; at += kTurnBytes) {
      a = Lanes::MultiplyAdd(at, a);
      b = Lanes::MultiplyAdd(at + kStep, b);
      c = Lanes::MultiplyAdd(at + 2 * kStep, c);
      d = Lanes::MultiplyAdd(at + 3 * kStep, d);
      e = Lanes::MultiplyAdd(at + 4 * kStep, e);
      f = Lanes::MultiplyAdd(at + 5 * kStep, f);
      g = Lanes::MultiplyAdd(at + 6 * kStep, g);
      h = Lanes::MultiplyAdd(at + 7 * kStep, h);
      a = Lanes::MultiplyAdd(at + 8 * kStep, a);
      b = Lanes::MultiplyAdd(at + 9 * kStep, b);
      c = Lanes::MultiplyAdd(at + 10 * kStep, c);
      d = Lanes::MultiplyAdd(at + 11 * kStep, d);
      e = Lanes::MultiplyAdd(at + 12 * kStep, e);
      f = Lanes::MultiplyAdd(at + 13 * kStep, f);
      g = Lanes::MultiplyAdd(at + 14 * kStep, g);
      h = Lanes::MultiplyAdd(at + 15 * kStep, h);
    }
    Vector sum = Lanes::Add(Lanes::Add(Lanes::Add(a, b), Lanes::Add(c, d)),
                            Lanes::Add(Lanes::Add(e, f), Lanes::Add(g, h)));
    Fence(sum);
    int bad = Lanes::AnyNan(sum);
    asm volatile("" : "+r"(bad));
    return bad != 0;
  }
};

}  // namespace
}  // namespace nanwatch
