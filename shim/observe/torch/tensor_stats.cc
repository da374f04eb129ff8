// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/torch/tensor_stats.h"

#include <cmath>
#include <cstring>

#include "shim/check/scan.h"

namespace nanwatch {

void FillStats(const TensorView& view, uint8_t index, wire::TensorStats* stats) noexcept {
  std::memset(stats, 0, sizeof *stats);
  CountNonFinite(view, stats);
  stats->index = index;
}

void FillShapeOnly(TensorView view, wire::TensorStats* stats) noexcept {
  static constexpr wire::TensorStats kNothing = CountsOf(0);
  view.counted = &kNothing;
  FillStats(view, 0, stats);
}

bool ReadNumber(const TensorView& view, double* number) noexcept {
  if (view.numel != 1) return false;
  wire::TensorStats stats{};
  CountNonFinite(view, &stats);
  *number = stats.nan != 0       ? std::nan("")
            : stats.pos_inf != 0 ? HUGE_VAL
            : stats.neg_inf != 0 ? -HUGE_VAL
                                 : stats.finite_mean;
  return true;
}

void CountBad(const TensorView& view, BadEntry* entry) noexcept {
  wire::TensorStats stats;
  FillStats(view, 0, &stats);
  entry->elements = stats.nan + stats.pos_inf + stats.neg_inf;
  entry->kinds = static_cast<uint8_t>((stats.nan != 0 ? wire::kHasNan : 0) |
                                      (stats.pos_inf != 0 ? wire::kHasPosInf : 0) |
                                      (stats.neg_inf != 0 ? wire::kHasNegInf : 0));
}

bool IsAllBad(const TensorView& view) noexcept {
  BadEntry bad;
  CountBad(view, &bad);
  return bad.elements == static_cast<uint64_t>(view.numel);
}

bool IsAllNan(const TensorView& view) noexcept {
  BadEntry bad;
  CountBad(view, &bad);
  return bad.kinds == wire::kHasNan && bad.elements == static_cast<uint64_t>(view.numel);
}

uint32_t InternText(Emitter& emitter, const char* text) noexcept {
  return text == nullptr || *text == '\0' ? 0 : emitter.Intern(text);
}

}  // namespace nanwatch
