// SPDX-License-Identifier: Apache-2.0
// The AVX-512 operations that shim/check/scan_avx512.cc uses, as loops, for machines without them
// (and for valgrind, which knows none). Found by the compiler before its own header of this name.
// Says nothing about the machine code, but everything about what the scan asks of it, byte by byte.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

struct __m512i {
  unsigned char bytes[64];
};
using __mmask64 = uint64_t;

namespace emulated {

template <class Lane>
inline Lane At(const __m512i& a, size_t i) {
  Lane lane;
  std::memcpy(&lane, a.bytes + i * sizeof(Lane), sizeof(Lane));
  return lane;
}

template <class Lane, class Make>
inline __m512i Lanes(Make make) {
  __m512i result;
  for (size_t i = 0; i < 64 / sizeof(Lane); ++i) {
    const Lane lane = make(i);
    std::memcpy(result.bytes + i * sizeof(Lane), &lane, sizeof(Lane));
  }
  return result;
}

template <class Lane>
inline __m512i Max(const __m512i& a, const __m512i& b) {
  return Lanes<Lane>(
      [&](size_t i) { return At<Lane>(a, i) > At<Lane>(b, i) ? At<Lane>(a, i) : At<Lane>(b, i); });
}

template <class Lane>
inline uint64_t Above(const __m512i& a, const __m512i& b) {
  uint64_t mask = 0;
  for (size_t i = 0; i < 64 / sizeof(Lane); ++i)
    mask |= uint64_t{At<Lane>(a, i) > At<Lane>(b, i)} << i;
  return mask;
}

}  // namespace emulated

inline __m512i _mm512_loadu_si512(const void* at) {
  __m512i result;
  std::memcpy(result.bytes, at, 64);
  return result;
}
inline __m512i _mm512_maskz_loadu_epi8(__mmask64 mask, const void* at) {
  return emulated::Lanes<uint8_t>([&](size_t i) {
    return (mask >> i & 1) != 0 ? static_cast<const uint8_t*>(at)[i] : uint8_t{0};
  });
}
inline __m512i _mm512_and_si512(__m512i a, __m512i b) {
  return emulated::Lanes<uint8_t>([&](size_t i) { return uint8_t(a.bytes[i] & b.bytes[i]); });
}
inline __m512i _mm512_xor_si512(__m512i a, __m512i b) {
  return emulated::Lanes<uint8_t>([&](size_t i) { return uint8_t(a.bytes[i] ^ b.bytes[i]); });
}
inline __m512i _mm512_set1_epi8(char v) {
  return emulated::Lanes<char>([=](size_t) { return v; });
}
inline __m512i _mm512_set1_epi16(short v) {
  return emulated::Lanes<short>([=](size_t) { return v; });
}
inline __m512i _mm512_set1_epi32(int v) {
  return emulated::Lanes<int>([=](size_t) { return v; });
}
inline __m512i _mm512_set1_epi64(long long v) {
  return emulated::Lanes<long long>([=](size_t) { return v; });
}
inline __m512i _mm512_max_epu8(__m512i a, __m512i b) { return emulated::Max<uint8_t>(a, b); }
inline __m512i _mm512_max_epu16(__m512i a, __m512i b) { return emulated::Max<uint16_t>(a, b); }
inline __m512i _mm512_max_epu32(__m512i a, __m512i b) { return emulated::Max<uint32_t>(a, b); }
inline __m512i _mm512_srli_epi32(__m512i a, unsigned bits) {
  return emulated::Lanes<uint32_t>([&](size_t i) { return emulated::At<uint32_t>(a, i) >> bits; });
}
inline unsigned _mm512_reduce_max_epu32(__m512i a) {
  unsigned largest = 0;
  for (size_t i = 0; i < sizeof(__m512i) / sizeof(uint32_t); ++i) {
    largest = std::max(largest, emulated::At<uint32_t>(a, i));
  }
  return largest;
}
inline uint64_t _mm512_cmpgt_epu8_mask(__m512i a, __m512i b) {
  return emulated::Above<uint8_t>(a, b);
}
inline uint64_t _mm512_cmpgt_epu16_mask(__m512i a, __m512i b) {
  return emulated::Above<uint16_t>(a, b);
}
inline uint64_t _mm512_cmpgt_epu32_mask(__m512i a, __m512i b) {
  return emulated::Above<uint32_t>(a, b);
}
