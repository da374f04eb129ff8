#include "shim/check/scan.h"

#include <atomic>

#include "shim/check/element_walk.h"
#include "shim/check/kernels.h"

namespace nanwatch {
namespace {

// Written before any other thread can scan (scan.h), so plain loads on the hot path do.
constinit const Kernels* g_kernels = &kScalarKernels;
constinit ParallelFor g_parallel_for = nullptr;

struct SharedScan {
  bool (*has_non_finite)(const void* data, size_t count);
  const char* data;
  size_t count;
  size_t element_bytes;
  size_t block_count;  // elements of a block
  std::atomic<bool> found{false};
};

// Blocks [begin, end) of a SharedScan.
void ScanBlocks(void* context, int64_t begin, int64_t end) {
  auto& scan = *static_cast<SharedScan*>(context);
  for (int64_t block = begin; block < end; ++block) {
    if (scan.found.load(std::memory_order_relaxed)) return;
    const size_t first = static_cast<size_t>(block) * scan.block_count;
    const size_t left = scan.count - first;
    const size_t count = left < scan.block_count ? left : scan.block_count;
    if (scan.has_non_finite(scan.data + first * scan.element_bytes, count)) {
      scan.found.store(true, std::memory_order_relaxed);
      return;
    }
  }
}

// Memory large enough, perhaps, for several threads. Out of line, so that the common path stays
// short.
[[gnu::noinline]] bool HasNonFiniteLarge(wire::ElementType type, const void* data,
                                         size_t count) noexcept {
  const auto has_non_finite = g_kernels->has_non_finite[static_cast<size_t>(type)];
  const size_t element_bytes = ElementBytes(type);
  const size_t block_count = element_bytes == 0 ? 0 : kParallelBlockBytes / element_bytes;
  if (g_parallel_for == nullptr || count < kParallelBytesMin / kParallelBlockBytes * block_count ||
      block_count == 0) {
    return has_non_finite(data, count);
  }
  SharedScan scan{has_non_finite, static_cast<const char*>(data), count, element_bytes,
                  block_count};
  constexpr int64_t kGrainBlocks = 2;
  const auto blocks = static_cast<int64_t>((count + block_count - 1) / block_count);
  g_parallel_for(0, blocks, kGrainBlocks, ScanBlocks, &scan);
  return scan.found.load(std::memory_order_relaxed);
}

}  // namespace

const char* InitScan(const char* force) noexcept {
  g_kernels = ChooseKernels(force);
  return g_kernels->name;
}

void SetParallelFor(ParallelFor parallel_for) noexcept { g_parallel_for = parallel_for; }

const Kernels& ChosenKernels() noexcept { return *g_kernels; }

[[gnu::hot]] bool HasNonFinite(wire::ElementType type, const void* data, size_t count) noexcept {
  const auto row = static_cast<size_t>(type);
  if (row >= wire::kElementTypeCount) [[unlikely]]
    return false;
  // The largest element has 16 bytes: below this count no type reaches the size for threads.
  if (count >= kParallelBytesMin / 16) [[unlikely]]
    return HasNonFiniteLarge(type, data, count);
  return g_kernels->has_non_finite[row](data, count);
}

bool HasNonFinite(const TensorView& view) noexcept {
  if (view.counted != nullptr) return KindsCounted(*view.counted) != 0;
  const ElementWalk walk = ElementWalk::OverMemory(view);
  if (walk.IsOneRun()) {
    return walk.count() != 0 && HasNonFinite(view.type, walk.data(), walk.count());
  }
  const auto has_non_finite = g_kernels->has_non_finite[static_cast<size_t>(view.type)];
  bool found = false;
  walk.ForEachRun([&](const char* data, size_t count, int64_t, int64_t) {
    found = has_non_finite(data, count);
    return found;
  });
  return found;
}

}  // namespace nanwatch
