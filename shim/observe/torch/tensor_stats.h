// SPDX-License-Identifier: Apache-2.0
// What exactly is in a tensor that was found bad, for records and for the table of bad values.
#pragma once

#include <cstdint>

#include "shim/check/tensor_view.h"
#include "shim/classify/bad_values.h"
#include "shim/emit/emitter.h"

namespace nanwatch {

// All of `stats`, zeroed where nothing is known. `index`: which of the op's tensors it is.
void FillStats(const TensorView& view, uint8_t index, wire::TensorStats* stats) noexcept;

// One element of each of these kinds (kHasNan...), for a tensor of which no more is known.
constexpr void FillKinds(uint8_t kinds, wire::TensorStats* stats) noexcept {
  stats->nan = (kinds & wire::kHasNan) != 0;
  stats->pos_inf = (kinds & wire::kHasPosInf) != 0;
  stats->neg_inf = (kinds & wire::kHasNegInf) != 0;
}
[[nodiscard]] constexpr wire::TensorStats CountsOf(uint8_t kinds) noexcept {
  wire::TensorStats stats{};
  FillKinds(kinds, &stats);
  stats.first_bad = -1;
  return stats;
}

// FillStats of a tensor of which nothing is known to be bad; its memory is not read.
void FillShapeOnly(TensorView view, wire::TensorStats* stats) noexcept;

// The one number of a tensor of one element, as it is; false for others. `view` may hold anything.
bool ReadNumber(const TensorView& view, double* number) noexcept;

// Fills `kinds`, and `elements`: how many are bad. A complex element counts once for each kind of bad
// value among its two parts.
void CountBad(const TensorView& view, BadEntry* entry) noexcept;

// A number that is not finite makes every element bad that it is used for. Where counts are all there
// is of a complex tensor, and they leave it open, the answer is yes: that is the one with more doubt.
[[nodiscard]] bool IsAllBad(const TensorView& view) noexcept;
[[nodiscard]] bool IsAllNan(const TensorView& view) noexcept;

// The name's id; 0 for none.
uint32_t InternText(Emitter& emitter, const char* text) noexcept;

}  // namespace nanwatch
