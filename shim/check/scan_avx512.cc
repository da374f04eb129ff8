// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "shim/check/kernel_loops.h"
#include "shim/check/vector_scan.h"

namespace nanwatch {
namespace {

struct Avx512 {
  // A struct, because a template argument loses the vector type's attributes.
  struct Vector {
    __m512i v;
  };

  template <int kLaneBytes>
  static Vector Max(Vector a, Vector b) {
    if constexpr (kLaneBytes == 1) return {_mm512_max_epu8(a.v, b.v)};
    if constexpr (kLaneBytes == 2) return {_mm512_max_epu16(a.v, b.v)};
    if constexpr (kLaneBytes == 4) return {_mm512_max_epu32(a.v, b.v)};
  }

  static Vector Load(const char* at) { return {_mm512_loadu_si512(at)}; }

  // 1 to 63 bytes, the rest of the vector zero. Bytes that are masked out are not accessed.
  static Vector LoadPart(const char* at, size_t bytes) {
    return {_mm512_maskz_loadu_epi8((__mmask64{1} << bytes) - 1, at)};
  }

  static Vector And(Vector a, Vector b) { return {_mm512_and_si512(a.v, b.v)}; }
  static Vector Xor(Vector a, Vector b) { return {_mm512_xor_si512(a.v, b.v)}; }

  static Vector Fill(uint64_t word) { return {_mm512_set1_epi64(static_cast<long long>(word))}; }

  // Narrow lanes are first moved down onto each other, until every lane of 32 bits holds one.
  template <int kLaneBytes>
  static uint64_t Largest(Vector seen) {
    __m512i largest = seen.v;
    if constexpr (kLaneBytes == 1) {
      largest = _mm512_max_epu8(largest, _mm512_srli_epi32(largest, 16));
      largest = _mm512_max_epu8(largest, _mm512_srli_epi32(largest, 8));
      largest = _mm512_and_si512(largest, _mm512_set1_epi32(0xff));
    }
    if constexpr (kLaneBytes == 2) {
      largest = _mm512_max_epu16(largest, _mm512_srli_epi32(largest, 16));
      largest = _mm512_and_si512(largest, _mm512_set1_epi32(0xffff));
    }
    return _mm512_reduce_max_epu32(largest);
  }

  template <int kLaneBytes>
  static bool AnyAbove(Vector seen, Vector limit) {
    if constexpr (kLaneBytes == 1) return _mm512_cmpgt_epu8_mask(seen.v, limit.v) != 0;
    if constexpr (kLaneBytes == 2) return _mm512_cmpgt_epu16_mask(seen.v, limit.v) != 0;
    if constexpr (kLaneBytes == 4) return _mm512_cmpgt_epu32_mask(seen.v, limit.v) != 0;
  }
};

template <class Format, int kParts>
using Avx512Scan = VectorScan<Avx512, Format, kParts>;

}  // namespace

constinit const Kernels kAvx512Kernels = MakeKernels<Avx512Scan>("avx512");

}  // namespace nanwatch
