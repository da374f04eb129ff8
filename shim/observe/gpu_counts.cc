#include "shim/observe/gpu_counts.h"

#include <algorithm>

namespace nanwatch {
namespace {

// The dimensions that matter, by falling distance in memory; how many.
int OrderDims(const InputSeen& seen, int* order) {
  int count = 0;
  for (int d = 0; d < seen.ndim; ++d) {
    if (seen.sizes[d] != 1) order[count++] = d;
  }
  std::stable_sort(order, order + count,
                   [&seen](int a, int b) { return seen.strides[a] > seen.strides[b]; });
  return count;
}

}  // namespace

bool IsOneRun(const InputSeen& seen, bool in_any_order) noexcept {
  int64_t expected = 1;
  int d = seen.ndim;
  while (d > 0 && (seen.sizes[d - 1] == 1 || seen.strides[d - 1] == expected)) {
    expected *= seen.sizes[--d];
  }
  if (d == 0) return true;
  if (!in_any_order) return false;
  int order[wire::kShapeDimsMax];
  expected = 1;
  for (int i = OrderDims(seen, order); i-- > 0;) {
    if (seen.strides[order[i]] != expected) return false;
    expected *= seen.sizes[order[i]];
  }
  return true;
}

void PlaceToIndex(const InputSeen& seen, wire::TensorStats* stats) noexcept {
  if (stats->first_bad < 0 || IsOneRun(seen, /*in_any_order=*/false)) return;
  const uint64_t bad = stats->nan + stats->pos_inf + stats->neg_inf;
  if (bad == static_cast<uint64_t>(seen.numel)) {
    stats->first_bad = 0;
    return;
  }
  if (bad != 1) {
    stats->first_bad = -1;
    return;
  }
  int order[wire::kShapeDimsMax];
  int64_t index[wire::kShapeDimsMax] = {};
  int64_t rest = stats->first_bad;
  const int count = OrderDims(seen, order);
  for (int i = 0; i < count; ++i) {
    index[order[i]] = rest / seen.strides[order[i]];
    rest %= seen.strides[order[i]];
  }
  int64_t row = 0;
  for (int d = 0; d < seen.ndim; ++d) row = row * seen.sizes[d] + index[d];
  stats->first_bad = row;
}

}  // namespace nanwatch
