// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/gpu_counts.h"

#include <algorithm>

namespace nanwatch {
namespace {

// The dimensions that matter, by falling distance in memory; how many.
int OrderDims(const TensorView& view, int* order) {
  int count = 0;
  for (int d = 0; d < view.ndim; ++d) {
    if (view.sizes[d] != 1) order[count++] = d;
  }
  std::stable_sort(order, order + count,
                   [&view](int a, int b) { return view.strides[a] > view.strides[b]; });
  return count;
}

}  // namespace

bool IsOneRun(const TensorView& view, bool in_any_order) noexcept {
  if (IsRowMajor(view)) return true;
  if (!in_any_order) return false;
  int order[wire::kShapeDimsMax];
  int64_t expected = 1;
  for (int i = OrderDims(view, order); i-- > 0;) {
    if (view.strides[order[i]] != expected) return false;
    expected *= view.sizes[order[i]];
  }
  return true;
}

void PlaceToIndex(const TensorView& view, wire::TensorStats* stats) noexcept {
  if (stats->first_bad < 0 || IsOneRun(view, /*in_any_order=*/false)) return;
  const uint64_t bad = stats->nan + stats->pos_inf + stats->neg_inf;
  if (bad == static_cast<uint64_t>(view.numel)) {
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
  const int count = OrderDims(view, order);
  for (int i = 0; i < count; ++i) {
    index[order[i]] = rest / view.strides[order[i]];
    rest %= view.strides[order[i]];
  }
  int64_t row = 0;
  for (int d = 0; d < view.ndim; ++d) row = row * view.sizes[d] + index[d];
  stats->first_bad = row;
}

ListedEntry FindListed(const device::ListResult& list, uint32_t entry) noexcept {
  ListedEntry found;
  if (!list.IsBad(entry)) return found;
  uint8_t met = 0;
  for (uint32_t i = 0; i < list.counted; ++i) {
    if (list.entry[i] == entry) return {list.kinds[i], true, list.counts[i]};
    met |= list.kinds[i];
  }
  found.kinds = met != 0 ? met : uint8_t{wire::kHasNan};
  return found;
}

}  // namespace nanwatch
