// SPDX-License-Identifier: Apache-2.0
// Copies between private memory and shared memory, word by word.
//
// Another thread or process may touch the shared side at the same moment: each word is therefore
// one atomic access, so that a race is a stale or mixed content, which the caller's sequence
// numbers detect, and never undefined behaviour. A store is a release and a load an acquire:
// neither costs anything on x86, and it lets the seqlocks here do without fences (a word's store
// cannot move before the odd sequence, a word's load cannot move after the second look at the
// sequence). Shared addresses are aligned to 8 bytes; sizes are not restricted on the private side.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace nanwatch::wire {

// Writes `bytes` bytes; the last word is filled up with zeros, so `shared` must have room for whole
// words.
inline void StoreWords(void* shared, const void* from, size_t bytes) noexcept {
  auto* word = static_cast<uint64_t*>(shared);
  const auto* source = static_cast<const unsigned char*>(from);
  for (size_t done = 0; done < bytes; done += sizeof(uint64_t), ++word) {
    uint64_t value = 0;
    const size_t left = bytes - done;
    std::memcpy(&value, source + done, left < sizeof value ? left : sizeof value);
    std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
  }
}

// Reads `bytes` bytes. Works on a mapping without write permission.
inline void LoadWords(void* to, const void* shared, size_t bytes) noexcept {
  auto* word = const_cast<uint64_t*>(static_cast<const uint64_t*>(shared));
  auto* target = static_cast<unsigned char*>(to);
  for (size_t done = 0; done < bytes; done += sizeof(uint64_t), ++word) {
    const uint64_t value = std::atomic_ref<uint64_t>(*word).load(std::memory_order_acquire);
    const size_t left = bytes - done;
    std::memcpy(target + done, &value, left < sizeof value ? left : sizeof value);
  }
}

// The two fields of 32 bits that share a word: the one at its address, and the one 4 bytes on.
static_assert(std::endian::native == std::endian::little);
constexpr uint32_t FirstHalf(uint64_t word) noexcept { return static_cast<uint32_t>(word); }
constexpr uint32_t SecondHalf(uint64_t word) noexcept { return static_cast<uint32_t>(word >> 32); }

// Where a field lies that SecondHalf takes from word `index` of a struct.
constexpr size_t SecondHalfOf(size_t index) noexcept {
  return index * sizeof(uint64_t) + sizeof(uint32_t);
}

}  // namespace nanwatch::wire
