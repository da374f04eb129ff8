// SPDX-License-Identifier: Apache-2.0
// How often a number was read at one place that was made at another. One line may read the losses
// of many origins, and each of these needs a record of its own. Lock-free; any thread.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "proto/wire/hash.h"

namespace nanwatch {

class ReadSites {
 public:
  // Counts a read and returns how many there were of the pair, this one included. kMany: there is
  // no room for another pair.
  uint32_t Count(uint32_t read_at, uint32_t made_at) noexcept {
    const uint64_t pair = (uint64_t{read_at} << 32 | made_at) + 1;
    static_assert(std::has_single_bit(kEntries));
    constexpr int kTopBits = 64 - std::countr_zero(kEntries);
    const auto hash = static_cast<uint32_t>((pair * wire::kGoldenRatio) >> kTopBits);
    for (uint32_t i = 0; i < kProbesMax; ++i) {
      Entry& entry = entries_[(hash + i) % kEntries];
      uint64_t there = entry.pair.load(std::memory_order_relaxed);
      if (there == 0 &&
          entry.pair.compare_exchange_strong(there, pair, std::memory_order_relaxed)) {
        there = pair;
      }
      if (there == pair) return entry.count.fetch_add(1, std::memory_order_relaxed) + 1;
    }
    return kMany;
  }

  static constexpr uint32_t kMany = UINT32_MAX;

 private:
  static constexpr uint32_t kEntries = 1024;
  static constexpr uint32_t kProbesMax = 16;
  struct Entry {
    std::atomic<uint64_t> pair{0};
    std::atomic<uint32_t> count{0};
  };
  Entry entries_[kEntries];
};

}  // namespace nanwatch
