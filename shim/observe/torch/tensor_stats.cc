// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/torch/tensor_stats.h"

#include <cmath>
#include <cstring>

#include "proto/wire/element_types.h"
#include "shim/check/element_walk.h"
#include "shim/check/scan.h"

namespace nanwatch {

namespace {

// Of each by itself: a complex one may count twice.
bool EveryElementIsBad(const TensorView& view) {
  const size_t bytes = ElementBytes(view.type);
  bool all = true;
  ElementWalk::OverMemory(view).ForEachRun([&](const char* data, size_t count, int64_t, int64_t) {
    for (size_t i = 0; i < count && all; ++i) {
      all = NonFiniteKinds({data + i * bytes, view.type, 0, nullptr, nullptr, 1}) != 0;
    }
    return !all;
  });
  return all;
}

}  // namespace

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
  const auto all = static_cast<uint64_t>(view.numel);
  wire::TensorStats stats;
  FillStats(view, 0, &stats);
  const uint64_t sum = stats.nan + stats.pos_inf + stats.neg_inf;
  if (!wire::IsComplex(view.type)) return sum == all;
  // (NaN, Inf) counts twice.
  if (stats.nan == all || stats.pos_inf == all || stats.neg_inf == all) return true;
  if (sum < all) return false;
  return view.counted != nullptr || EveryElementIsBad(view);
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
