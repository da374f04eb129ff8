// The scan of float32 and float64 by arithmetic: a load and one instruction for a vector, of which
// two begin in a cycle. Only for scan_avx2.cc; see kernels.h for why nothing here has linkage.
//
// A running sum of squares: finite as long as all values are, and none is too large to be squared
// (above 1e19, in float32), which bits have to decide then. Its root is an upper bound of their
// magnitudes. That is arithmetic in the job's thread, so its floating-point modes and flags are set
// aside meanwhile: a trap would end the job, a sticky flag would be seen. Subnormals count as zero,
// because some processors are slow to multiply them.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace nanwatch {
namespace {

struct Float64Lanes {
  using Vector = __m256d;
  static Vector AddSquare(const char* at, Vector sum) {
    const Vector values = _mm256_loadu_pd(reinterpret_cast<const double*>(at));
    return _mm256_fmadd_pd(values, values, sum);
  }
  static Vector Add(Vector a, Vector b) { return _mm256_add_pd(a, b); }
  static double Sum(Vector sum) {
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(sum), _mm256_extractf128_pd(sum, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
  }
};

struct Float32Lanes {
  using Vector = __m256;
  static Vector AddSquare(const char* at, Vector sum) {
    const Vector values = _mm256_loadu_ps(reinterpret_cast<const float*>(at));
    return _mm256_fmadd_ps(values, values, sum);
  }
  static Vector Add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static double Sum(Vector sum) {
    return Float64Lanes::Sum(_mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(sum)),
                                           _mm256_cvtps_pd(_mm256_extractf128_ps(sum, 1))));
  }
};

template <class Lanes>
struct ArithmeticScan {
  using Vector = typename Lanes::Vector;
  static constexpr size_t kStep = sizeof(Vector);
  static constexpr size_t kTurnBytes = 16 * kStep;
  static constexpr size_t kLookBytes = 128 * kTurnBytes;  // how often to stop and look at the sums
  static constexpr size_t kWorthwhileBytes = 2048;  // below it, the modes cost more than is saved

  // From *at to `end`, a turn at least. Leaves *at at `end`, or where the first stretch begins that
  // has something bad, or too large to be squared. Gives the largest of the stretches' sums of
  // squares before that, the bits of a double.
  static uint64_t Run(const char** at, const char* end) {
    constexpr unsigned kAllMaskedNoSubnormals = 0x1fc0;
    const unsigned modes = _mm_getcsr();
    _mm_setcsr(kAllMaskedNoSubnormals);
    uint64_t largest = 0;
    while (*at != end) {
      const size_t left = static_cast<size_t>(end - *at);
      // The last turn may overlap the one before: no sum is made of two stretches.
      const char* from = left < kTurnBytes ? end - kTurnBytes : *at;
      const size_t bytes = left < kTurnBytes   ? kTurnBytes
                           : left < kLookBytes ? left / kTurnBytes * kTurnBytes
                                               : kLookBytes;
      const uint64_t squares = Look(from, from + bytes);
      if (squares >= kInfinity) break;
      largest = squares > largest ? squares : largest;
      *at = from + bytes;
    }
    _mm_setcsr(modes);
    return largest;
  }

 private:
  // The empty instructions keep the compiler, to which modes mean nothing, from moving arithmetic
  // across.
  static void Fence(Vector& sum) { asm volatile("" : "+x"(sum)); }

  // Of a double without its sign; what is above is NaN.
  static constexpr uint64_t kInfinity = uint64_t{0x7ff} << 52;

  // Eight chains: a multiply-add has a latency of four, and two begin in a cycle.
  [[gnu::noinline]] static uint64_t Look(const char* at, const char* end) {
    Vector a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{};
    Fence(a), Fence(b), Fence(c), Fence(d), Fence(e), Fence(f), Fence(g), Fence(h);
#pragma GCC unroll 4
    for (; at != end; at += kTurnBytes) {
      a = Lanes::AddSquare(at, a);
      b = Lanes::AddSquare(at + kStep, b);
      c = Lanes::AddSquare(at + 2 * kStep, c);
      d = Lanes::AddSquare(at + 3 * kStep, d);
      e = Lanes::AddSquare(at + 4 * kStep, e);
      f = Lanes::AddSquare(at + 5 * kStep, f);
      g = Lanes::AddSquare(at + 6 * kStep, g);
      h = Lanes::AddSquare(at + 7 * kStep, h);
      a = Lanes::AddSquare(at + 8 * kStep, a);
      b = Lanes::AddSquare(at + 9 * kStep, b);
      c = Lanes::AddSquare(at + 10 * kStep, c);
      d = Lanes::AddSquare(at + 11 * kStep, d);
      e = Lanes::AddSquare(at + 12 * kStep, e);
      f = Lanes::AddSquare(at + 13 * kStep, f);
      g = Lanes::AddSquare(at + 14 * kStep, g);
      h = Lanes::AddSquare(at + 15 * kStep, h);
    }
    Vector sum = Lanes::Add(Lanes::Add(Lanes::Add(a, b), Lanes::Add(c, d)),
                            Lanes::Add(Lanes::Add(e, f), Lanes::Add(g, h)));
    Fence(sum);
    const double squares = Lanes::Sum(sum);
    uint64_t bits = __builtin_bit_cast(uint64_t, squares) & ~(uint64_t{1} << 63);
    asm volatile("" : "+r"(bits));
    return bits;
  }
};

}  // namespace
}  // namespace nanwatch
