// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <type_traits>

#include "shim/check/arithmetic_scan.h"
#include "shim/check/kernel_loops.h"
#include "shim/check/vector_scan.h"

namespace nanwatch {
namespace {

struct Avx2 {
  // A struct, because a template argument loses the vector type's attributes.
  struct Vector {
    __m256i v;
  };

  static Vector Load(const char* at) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))};
  }

  // 1 to 31 bytes, the rest of the vector zero: two loads of the largest power of two that fits,
  // from the beginning and up to the end, which overlap unless the number is twice that power.
  static Vector LoadPart(const char* at, size_t bytes) {
    if (bytes >= 16) {
      return {_mm256_set_m128i(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)),
                               _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + bytes - 16)))};
    }
    if (bytes >= 8) return Pair<uint64_t>(at, bytes);
    if (bytes >= 4) return Pair<uint32_t>(at, bytes);
    if (bytes >= 2) return Pair<uint16_t>(at, bytes);
    return Pair<uint8_t>(at, bytes);
  }

  static Vector And(Vector a, Vector b) { return {_mm256_and_si256(a.v, b.v)}; }
  static Vector Xor(Vector a, Vector b) { return {_mm256_xor_si256(a.v, b.v)}; }

  static Vector Fill(uint64_t word) { return {_mm256_set1_epi64x(static_cast<long long>(word))}; }

  template <int kLaneBytes>
  static Vector Max(Vector a, Vector b) {
    if constexpr (kLaneBytes == 1) return {_mm256_max_epu8(a.v, b.v)};
    if constexpr (kLaneBytes == 2) return {_mm256_max_epu16(a.v, b.v)};
    if constexpr (kLaneBytes == 4) return {_mm256_max_epu32(a.v, b.v)};
  }

  template <int kLaneBytes>
  static uint64_t Largest(Vector seen) {
    const __m128i low = _mm256_castsi256_si128(seen.v);
    const __m128i high = _mm256_extracti128_si256(seen.v, 1);
    if constexpr (kLaneBytes == 4) {
      __m128i largest = _mm_max_epu32(low, high);
      largest = _mm_max_epu32(largest, _mm_shuffle_epi32(largest, 0x4e));
      largest = _mm_max_epu32(largest, _mm_shuffle_epi32(largest, 0xb1));
      return static_cast<uint32_t>(_mm_cvtsi128_si32(largest));
    }
    if constexpr (kLaneBytes == 2) return LargestOfEight(_mm_max_epu16(low, high));
    // The upper bytes move down onto the lower ones, and zeros take their places.
    const __m128i bytes = _mm_max_epu8(low, high);
    return LargestOfEight(
        _mm_max_epu8(_mm_srli_epi16(bytes, 8), _mm_and_si128(bytes, _mm_set1_epi16(0x00ff))));
  }

  // AVX2 compares signed numbers only; a maximum that is not the limit itself is above it.
  template <int kLaneBytes>
  static bool AnyAbove(Vector seen, Vector limit) {
    const __m256i same = _mm256_cmpeq_epi8(Max<kLaneBytes>(seen, limit).v, limit.v);
    return _mm256_movemask_epi8(same) != -1;
  }

 private:
  // There is an instruction for the smallest of eight, and none for the largest.
  static uint64_t LargestOfEight(__m128i words) {
    const __m128i smallest = _mm_minpos_epu16(_mm_xor_si128(words, _mm_set1_epi32(-1)));
    return static_cast<uint16_t>(~_mm_cvtsi128_si32(smallest));
  }

  template <class Half>
  static Vector Pair(const char* at, size_t bytes) {
    const auto first = static_cast<long long>(LoadWord<Half>(at));
    const auto second = static_cast<long long>(LoadWord<Half>(at + bytes - sizeof(Half)));
    return {_mm256_set_epi64x(0, 0, second, first)};
  }
};

// Long runs of float32 and float64 are taken by arithmetic, everything else by bits.
template <class Format, int kParts>
struct Avx2Scan {
  using ByBits = VectorScan<Avx2, Format, kParts>;
  using ByArithmetic = ArithmeticScan<
      std::conditional_t<sizeof(typename Format::Word) == 8, Float64Lanes, Float32Lanes>, ByBits>;
  static constexpr size_t kElementBytes = kParts * sizeof(typename Format::Word);
  static constexpr bool kArithmetic = sizeof(typename Format::Word) >= 4;

  [[gnu::hot]] static Magnitude Run(const void* data, size_t count) {
    if constexpr (kArithmetic) {
      if (count >= ByArithmetic::kWorthwhileBytes / kElementBytes) return RunLong(data, count);
    }
    return ByBits::Run(data, count);
  }

 private:
  // Out of line, so that the short path saves no registers.
  [[gnu::noinline]] static Magnitude RunLong(const void* data, size_t count) {
    return ByArithmetic::Run(static_cast<const char*>(data), count * kElementBytes);
  }
};

}  // namespace

constinit const Kernels kAvx2Kernels = MakeKernels<Avx2Scan>("avx2");

}  // namespace nanwatch
