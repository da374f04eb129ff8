// SPDX-License-Identifier: Apache-2.0
// What a GPU has counted in a tensor, as records say it.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"
#include "shim/check/tensor_view.h"
#include "shim/device/check_launch.h"
#include "shim/device/list_launch.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {

// Kinds without counts: another stream has written since, or they say nothing (`brief`).
inline void FillCounts(const device::TensorCounts& counts, uint8_t kinds, bool brief,
                       wire::TensorStats* stats) noexcept {
  stats->nan = counts.nan;
  stats->pos_inf = counts.pos_inf;
  stats->neg_inf = counts.neg_inf;
  const bool says_nothing = counts.nan + counts.pos_inf + counts.neg_inf == 0;
  if (kinds != 0 && (brief || says_nothing)) return FillKinds(kinds, stats);
  if (kinds != 0) stats->first_bad = static_cast<int64_t>(counts.first_bad);
  if (counts.finite_min > counts.finite_max) return;
  stats->finite_min = counts.finite_min;
  stats->finite_max = counts.finite_max;
  stats->finite_mean = counts.finite_mean;
}

// Whether the elements lie side by side in the order of their indices, or (`in_any_order`) in some
// order: transposed, channels last.
[[nodiscard]] bool IsOneRun(const TensorView& view, bool in_any_order) noexcept;

// What a list's launch (list_launch.h) says of an entry. Of the first bad ones there are counts. Of
// the rest it is known that they are bad, and no more: they are taken for what those are.
struct ListedEntry {
  uint8_t kinds = 0;  // 0: it is clean, or was written since by another stream
  bool counted = false;
  device::TensorCounts counts = {};  // where `counted`; `first_bad` is a place in memory
};
[[nodiscard]] ListedEntry FindListed(const device::ListResult& list, uint32_t entry) noexcept;

// The place in memory `first_bad`, which a list's launch tells (list_launch.h), made an index; -1
// where others are bad that may come before it.
void PlaceToIndex(const TensorView& view, wire::TensorStats* stats) noexcept;

}  // namespace nanwatch
