// SPDX-License-Identifier: Apache-2.0
// The slow path: what exactly is in a tensor that was found bad.
#include <bit>

#include "shim/check/element_walk.h"
#include "shim/check/float_environment.h"
#include "shim/check/kernels.h"
#include "shim/check/scan.h"

namespace nanwatch {
namespace {

void FillShape(const TensorView& view, wire::TensorStats* stats) noexcept {
  stats->element_type = static_cast<uint8_t>(view.type);
  stats->ndim = static_cast<uint8_t>(view.ndim < UINT8_MAX ? view.ndim : UINT8_MAX);
  stats->numel = view.numel;
  for (int d = 0; d < wire::kShapeDimsMax; ++d) stats->shape[d] = d < view.ndim ? view.sizes[d] : 0;
}

void CopyCounts(const wire::TensorStats& counted, wire::TensorStats* stats) noexcept {
  stats->nan = counted.nan;
  stats->pos_inf = counted.pos_inf;
  stats->neg_inf = counted.neg_inf;
  stats->finite_min = counted.finite_min;
  stats->finite_max = counted.finite_max;
  stats->finite_mean = counted.finite_mean;
  stats->first_bad = counted.first_bad;
}

// The plain sum is the more exact one; where it has overflowed (it then stays so) the scaled one
// has not.
double MeanOf(const Tally& tally) noexcept {
  const auto parts = static_cast<double>(tally.finite_parts);
  const bool overflowed = (std::bit_cast<uint64_t>(tally.sum) << 1) >= (uint64_t{0x7ff} << 53);
  return overflowed ? tally.sum_scaled / parts / kSumScale : tally.sum / parts;
}

void FillFinite(const Tally& tally, double (*key_to_double)(int64_t),
                wire::TensorStats* stats) noexcept {
  if (tally.finite_parts == 0) return;
  stats->finite_min = key_to_double(tally.key_min);
  stats->finite_max = key_to_double(tally.key_max);
  const double mean = MeanOf(tally);
  // Rounding may carry the mean of nearly equal numbers a little beyond them.
  stats->finite_mean = mean < stats->finite_min   ? stats->finite_min
                       : mean > stats->finite_max ? stats->finite_max
                                                  : mean;
}

}  // namespace

uint8_t KindsCounted(const wire::TensorStats& counted) noexcept {
  if (counted.nan != 0) return wire::kHasNan;
  return static_cast<uint8_t>((counted.pos_inf != 0 ? wire::kHasPosInf : 0) |
                              (counted.neg_inf != 0 ? wire::kHasNegInf : 0));
}

uint8_t NonFiniteKinds(const TensorView& view) noexcept {
  if (view.counted != nullptr) return KindsCounted(*view.counted);
  const ElementWalk walk = ElementWalk::OverMemory(view);
  const auto row = static_cast<size_t>(view.type);
  uint8_t kinds = 0;
  walk.ForEachRun([&](const char* data, size_t count, int64_t, int64_t) {
    kinds |= ChosenKernels().kinds[row](data, count);
    return (kinds & wire::kHasNan) != 0;
  });
  // What else was met until then depends on where the NaN lies.
  return (kinds & wire::kHasNan) != 0 ? wire::kHasNan : kinds;
}

void CountNonFinite(const TensorView& view, wire::TensorStats* stats) noexcept {
  FillShape(view, stats);
  if (view.counted != nullptr) return CopyCounts(*view.counted, stats);
  const DefaultFloatEnvironment environment;
  stats->finite_min = stats->finite_max = stats->finite_mean = 0;
  stats->first_bad = -1;

  const ElementWalk walk = ElementWalk::OverElements(view);
  const auto row = static_cast<size_t>(view.type);
  Tally tally;
  walk.ForEachRun([&](const char* data, size_t count, int64_t index, int64_t step) {
    tally.first_bad = SIZE_MAX;
    ChosenKernels().tally[row](data, count, &tally);
    if (tally.first_bad != SIZE_MAX) {
      const int64_t bad = index + static_cast<int64_t>(tally.first_bad) * step;
      if (stats->first_bad < 0 || bad < stats->first_bad) stats->first_bad = bad;
    }
    return false;
  });
  const auto repeats = static_cast<uint64_t>(walk.repeats());
  stats->nan = tally.nan * repeats;
  stats->pos_inf = tally.pos_inf * repeats;
  stats->neg_inf = tally.neg_inf * repeats;
  if (row < wire::kElementTypeCount) FillFinite(tally, ChosenKernels().key_to_double[row], stats);
}

}  // namespace nanwatch
