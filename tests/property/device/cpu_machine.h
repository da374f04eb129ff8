// SPDX-License-Identifier: Apache-2.0
// A GPU's blocks, threads and memory, played by the CPU: the kernel's source runs here as it does
// there, with its threads in any order between two barriers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "shim/device/check_batch.h"
#include "shim/device/check_kernel.h"
#include "shim/device/check_list.h"
#include "shim/device/compare_list.h"
#include "shim/device/measure_list.h"
#include "shim/device/sum_list.h"

namespace nanwatch::device {

// Addresses are those of this process. What a GPU would answer with an error, a misaligned access,
// is counted here.
struct CpuMemory {
  static inline std::atomic<int> misaligned{0};
  // Bytes that the launches of this thread have read of tensors.
  static inline thread_local uint64_t bytes_read = 0;

  static void ExpectAligned(uint64_t address, uint64_t bytes) {
    if (address % bytes != 0) misaligned.fetch_add(1, std::memory_order_relaxed);
  }
  static Vector LoadVector(uint64_t address) {
    ExpectAligned(address, sizeof(Vector));
    bytes_read += sizeof(Vector);
    Vector vector;
    std::memcpy(&vector, reinterpret_cast<const void*>(address), sizeof(vector));
    return vector;
  }
  template <class Word>
  static Word LoadPart(uint64_t address) {
    ExpectAligned(address, sizeof(Word));
    bytes_read += sizeof(Word);
    Word word;
    std::memcpy(&word, reinterpret_cast<const void*>(address), sizeof(word));
    return word;
  }
  static std::atomic_ref<uint32_t> WordAt(uint64_t address) {
    return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(address));
  }
  static void ForgetBlock() {}
  // The threads of a block take turns here.
  static void OrInBlock(uint32_t* word, uint32_t bits) { *word |= bits; }
  static void OrInDevice(uint64_t address, uint32_t bits) {
    WordAt(address).fetch_or(bits, std::memory_order_relaxed);
  }
  static uint32_t AddInDevice(uint64_t address, uint32_t value) {
    return WordAt(address).fetch_add(value, std::memory_order_acq_rel);
  }
  static uint32_t TakeInDevice(uint64_t address) {
    return WordAt(address).exchange(0, std::memory_order_relaxed);
  }
  static void AddDoubleInDevice(uint64_t address, double value) {
    ExpectAligned(address, sizeof(value));
    std::atomic_ref<double>(*reinterpret_cast<double*>(address))
        .fetch_add(value, std::memory_order_relaxed);
  }
  static double TakeDoubleInDevice(uint64_t address) {
    return std::atomic_ref<double>(*reinterpret_cast<double*>(address))
        .exchange(0, std::memory_order_relaxed);
  }
  static std::atomic_ref<uint64_t> LongAt(uint64_t address) {
    ExpectAligned(address, sizeof(uint64_t));
    return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(address));
  }
  static void AddLongInDevice(uint64_t address, uint64_t value) {
    LongAt(address).fetch_add(value, std::memory_order_relaxed);
  }
  static void RaiseInDevice(uint64_t address, uint64_t value) {
    uint64_t seen = LongAt(address).load(std::memory_order_relaxed);
    while (seen < value && !LongAt(address).compare_exchange_weak(seen, value)) {
    }
  }
  static float FloatOfHalf(uint16_t word) {
    using Half = FormatOf<wire::ElementType::kFloat16>;
    if (Half::IsNan(word)) return __builtin_nanf("");
    if (Half::IsNonFinite(word)) return Half::IsPosInf(word) ? INFINITY : -INFINITY;
    return static_cast<float>(Half::ToDouble(word));
  }
  static void StoreInDevice(uint64_t address, uint32_t value) {
    WordAt(address).store(value, std::memory_order_relaxed);
  }
  static uint32_t LoadInDevice(uint64_t address) {
    return WordAt(address).load(std::memory_order_relaxed);
  }
  static uint32_t CountUpTo(const uint32_t* ends, uint32_t count, uint32_t tile) {
    return static_cast<uint32_t>(
        std::count_if(ends, ends + count, [tile](uint32_t end) { return end <= tile; }));
  }
  static void PublishToHost(uint64_t address, uint64_t value) {
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(address))
        .store(value, std::memory_order_release);
  }
};

// The threads of a block: each phase runs them in another order. Between two phases their tallies
// stay, and nothing else.
class CpuTeam {
 public:
  explicit CpuTeam(uint64_t seed) : random_(seed), order_(kThreadsPerBlock) {
    std::iota(order_.begin(), order_.end(), 0u);
  }

  template <class Phase>
  void Each(Phase phase) {
    // A shuffle would cost more than most phases: start anywhere, go by any odd step.
    const auto start = static_cast<uint32_t>(random_()),
               step = static_cast<uint32_t>(random_()) | 1;
    for (uint32_t i = 0; i < kThreadsPerBlock; ++i) {
      const uint32_t thread = order_[(start + i * step) % kThreadsPerBlock];
      phase(thread, tallies_[thread]);
    }
  }

 private:
  std::mt19937_64 random_;
  std::vector<uint32_t> order_;
  std::vector<Tally> tallies_ = std::vector<Tally>(kThreadsPerBlock);
};

// One block from its first instruction to its last. Its shared memory begins with whatever was
// there.
template <class Launch>
void RunBlock(const Launch& launch, Place place, uint64_t seed) {
  const auto block = std::make_unique<BlockState>();
  std::memset(static_cast<void*>(block.get()), static_cast<int>(seed), sizeof(BlockState));
  CpuTeam team(seed);
  team.Each([&](uint32_t thread, Tally&) { CopyLaunch(launch, *block, thread); });
  CheckBlock<CpuMemory>(*block, place, team);
}

inline void RunBlock(const ListLaunch& launch, Place place, uint64_t seed) {
  const auto block = std::make_unique<ListState>();
  std::memset(static_cast<void*>(block.get()), static_cast<int>(seed), sizeof(ListState));
  CpuTeam team(seed);
  team.Each([&](uint32_t thread, Tally&) { CopyList(launch, *block, thread); });
  CheckListBlock<CpuMemory>(*block, place, team);
}

inline void RunBlock(const BatchLaunch& launch, Place place, uint64_t seed) {
  const auto block = std::make_unique<BatchState>();
  std::memset(static_cast<void*>(block.get()), static_cast<int>(seed), sizeof(BatchState));
  CpuTeam team(seed);
  team.Each([&](uint32_t thread, Tally&) { CopyBatch(launch, *block, thread); });
  CheckBatchBlock<CpuMemory>(*block, place, team);
}

// The same list for nanwatch_sum_list.
struct SumLaunch : ListLaunch {};

inline void RunBlock(const SumLaunch& launch, Place place, uint64_t seed) {
  const auto block = std::make_unique<SumState>();
  std::memset(static_cast<void*>(block.get()), static_cast<int>(seed), sizeof(SumState));
  CpuTeam team(seed);
  team.Each([&](uint32_t thread, Tally&) { CopyList(launch, block->list, thread); });
  SumListBlock<CpuMemory>(*block, place, team);
}

// The same for nanwatch_measure_list.
struct MeasureLaunch : ListLaunch {};

inline void RunBlock(const MeasureLaunch& launch, Place place, uint64_t seed) {
  const auto block = std::make_unique<MeasureState>();
  std::memset(static_cast<void*>(block.get()), static_cast<int>(seed), sizeof(MeasureState));
  CpuTeam team(seed);
  team.Each([&](uint32_t thread, Tally&) { CopyList(launch, block->list, thread); });
  MeasureListBlock<CpuMemory>(*block, place, team);
}

// The same for nanwatch_compare_list, with the samples' places behind it.
struct CompareLaunch : ListLaunch {};

inline void RunBlock(const CompareLaunch& launch, Place place, uint64_t seed) {
  const auto block = std::make_unique<MeasureState>();
  std::memset(static_cast<void*>(block.get()), static_cast<int>(seed), sizeof(MeasureState));
  CpuTeam team(seed);
  team.Each([&](uint32_t thread, Tally&) { CopyList(launch, block->list, thread); });
  CompareListBlock<CpuMemory>(*block, place, team);
}

// All blocks of a launch, one after the other in an order drawn from `random`.
template <class Launch>
void RunLaunch(const Launch& launch, uint32_t blocks, std::mt19937_64& random) {
  std::vector<uint32_t> order(blocks);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), random);
  for (const uint32_t block : order) RunBlock(launch, {block, blocks}, random());
}

}  // namespace nanwatch::device
