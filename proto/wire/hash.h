// SPDX-License-Identifier: Apache-2.0
// How bytes and numbers are hashed, in the job and outside it. The results are the same on every
// machine, because names of files are made of some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace nanwatch::wire {

// 2^64 over the golden ratio. Its multiples spread evenly; take the upper bits.
inline constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15u;

// FNV-1a. `hash`: of what comes before.
inline constexpr uint64_t kFnvBegin = 0xcbf29ce484222325u;
constexpr uint64_t Fnv1a(std::string_view bytes, uint64_t hash = kFnvBegin) noexcept {
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  }
  return hash;
}

// The same of the bytes of each word, the lowest first.
constexpr uint64_t Fnv1a(std::span<const uint64_t> words, uint64_t hash = kFnvBegin) noexcept {
  for (const uint64_t word : words) {
    for (int bit = 0; bit < 64; bit += 8) hash = (hash ^ (word >> bit & 0xff)) * 0x100000001b3u;
  }
  return hash;
}

// FNV-1a with a final mix, for tables that take places from the low bits and tell entries apart by
// the high ones.
inline uint64_t HashBytes(const void* bytes, size_t size) noexcept {
  uint64_t hash = Fnv1a(std::string_view(static_cast<const char*>(bytes), size));
  hash = (hash ^ hash >> 32) * kGoldenRatio;
  return hash ^ hash >> 29;
}

// splitmix64's last steps (Steele, Lea, Flood 2014): every bit of the result depends on all.
constexpr uint64_t Mixed(uint64_t word) noexcept {
  word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
  word = (word ^ word >> 27) * 0x94d049bb133111ebu;
  return word ^ word >> 31;
}

}  // namespace nanwatch::wire
