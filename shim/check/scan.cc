// SPDX-License-Identifier: Apache-2.0
#include "shim/check/scan.h"

#include <atomic>
#include <mutex>

#include "shim/check/element_walk.h"
#include "shim/check/float_environment.h"
#include "shim/check/kernels.h"
#include "shim/check/parallel.h"

namespace nanwatch {
namespace {

// Written before any other thread can scan (scan.h), so plain loads on the hot path do.
constinit const Kernels* g_kernels = &kScalarKernels;

// Of two stretches together.
Magnitude Larger(Magnitude a, Magnitude b) noexcept {
  using Kind = Magnitude::Kind;
  if (a.IsNonFinite() || b.kind == Kind::kNone) return a;
  if (b.IsNonFinite() || a.kind == Kind::kNone) return b;
  return {a.bits > b.bits ? a.bits : b.bits, a.kind == b.kind ? a.kind : Kind::kAtLeast};
}

struct SharedScan {
  Magnitude (*look)(const void* data, size_t count);
  const char* data;
  size_t count;
  size_t element_bytes;
  size_t block_count;  // elements of a block
  std::atomic<bool> found{false};
  std::mutex mutex{};  // covers the next
  Magnitude magnitude{0, Magnitude::Kind::kNone};
};

// Blocks [begin, end) of a SharedScan.
void ScanBlocks(void* context, int64_t begin, int64_t end) {
  auto& scan = *static_cast<SharedScan*>(context);
  Magnitude magnitude{0, Magnitude::Kind::kNone};
  for (int64_t block = begin; block < end; ++block) {
    if (scan.found.load(std::memory_order_relaxed)) return;
    const size_t first = static_cast<size_t>(block) * scan.block_count;
    const size_t left = scan.count - first;
    const size_t count = left < scan.block_count ? left : scan.block_count;
    const Magnitude seen = scan.look(scan.data + first * scan.element_bytes, count);
    if (seen.IsNonFinite()) return scan.found.store(true, std::memory_order_relaxed);
    magnitude = Larger(magnitude, seen);
  }
  const std::lock_guard<std::mutex> lock(scan.mutex);
  scan.magnitude = Larger(scan.magnitude, magnitude);
}

// Memory large enough, perhaps, for several threads. Out of line, so that the common path stays
// short.
[[gnu::noinline]] Magnitude LookLarge(wire::ElementType type, const void* data,
                                      size_t count) noexcept {
  const auto look = g_kernels->look[static_cast<size_t>(type)];
  const size_t element_bytes = ElementBytes(type);
  const size_t block_count = element_bytes == 0 ? 0 : kParallelBlockBytes / element_bytes;
  const ParallelFor parallel_for = ChosenParallelFor();
  if (parallel_for == nullptr || count < kParallelBytesMin / kParallelBlockBytes * block_count ||
      block_count == 0) {
    return look(data, count);
  }
  SharedScan scan{look, static_cast<const char*>(data), count, element_bytes, block_count};
  const auto blocks = static_cast<int64_t>((count + block_count - 1) / block_count);
  parallel_for(0, blocks, kParallelGrainBlocks, ScanBlocks, &scan);
  if (scan.found.load(std::memory_order_relaxed)) return {0, Magnitude::Kind::kNonFinite};
  return scan.magnitude;
}

}  // namespace

const char* InitScan(const char* force) noexcept {
  g_kernels = ChooseKernels(force);
  return g_kernels->name;
}

const Kernels& ChosenKernels() noexcept { return *g_kernels; }

[[gnu::hot]] Magnitude Look(wire::ElementType type, const void* data, size_t count) noexcept {
  const auto row = static_cast<size_t>(type);
  if (row >= wire::kElementTypeCount) [[unlikely]]
    return {0, Magnitude::Kind::kNone};
  // The largest element has 16 bytes: below this count no type reaches the size for threads.
  if (count >= kParallelBytesMin / 16) [[unlikely]]
    return LookLarge(type, data, count);
  return g_kernels->look[row](data, count);
}

Magnitude Look(const TensorView& view) noexcept {
  if (view.counted != nullptr) {
    return {
        0, KindsCounted(*view.counted) != 0 ? Magnitude::Kind::kNonFinite : Magnitude::Kind::kNone};
  }
  const ElementWalk walk = ElementWalk::OverMemory(view);
  if (walk.IsOneRun()) return Look(view.type, walk.data(), walk.count());
  const auto look = g_kernels->look[static_cast<size_t>(view.type)];
  Magnitude magnitude{0, Magnitude::Kind::kNone};
  walk.ForEachRun([&](const char* data, size_t count, int64_t, int64_t) {
    magnitude = Larger(magnitude, look(data, count));
    return magnitude.IsNonFinite();
  });
  return magnitude;
}

double LargestValue(Magnitude magnitude, wire::ElementType type) noexcept {
  const auto row = static_cast<size_t>(type);
  if (row >= wire::kElementTypeCount) return 0;
  const DefaultFloatEnvironment environment;
  switch (magnitude.kind) {
    case Magnitude::Kind::kLargest:
    case Magnitude::Kind::kAtLeast:
      return g_kernels->key_to_double[row](static_cast<int64_t>(magnitude.bits));
    case Magnitude::Kind::kNone:
    case Magnitude::Kind::kNonFinite:
      break;
  }
  return 0;
}

}  // namespace nanwatch
