// SPDX-License-Identifier: Apache-2.0
// Looks for NaN, +Inf and -Inf in memory.
//
// Two questions, two prices. Look asks whether there is anything at all (and knows by the way how
// large the values are, magnitude.h); it runs for every op of the job and goes at the speed of the
// cache. CountNonFinite and NonFiniteKinds run only
// after it said yes. All of them look at bits alone, so that flush-to-zero modes, trapping
// floating-point exceptions and the flags the job was compiled with change nothing. They read each
// addressed element and nothing beside it, allocate nothing, and may run in any number of threads
// at once, also over memory that another thread is writing (the answer is then about some mixture
// of old and new bytes).
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/wire/record.h"
#include "shim/check/magnitude.h"
#include "shim/check/tensor_view.h"

namespace nanwatch {

// Chooses the instruction set. Call once, before any other function of this header and before a
// second thread exists that could call one (without it everything works, at the slowest level).
// `force` names a level, "scalar", "avx2" or "avx512"; one that this processor or operating system
// cannot run, or an unknown name, is ignored, as is nullptr: the best available is taken. Returns
// the name of the level chosen, a string literal.
const char* InitScan(const char* force) noexcept;

// Whether any of `count` elements lying side by side from `data` is NaN or infinite; for a complex
// element, if either part is. `data` need not be aligned. Nothing is known of kNone.
// From kParallelBytesMin on in several threads (parallel.h), where a hit in one part stops the
// others within kParallelBlockBytes.
[[nodiscard]] Magnitude Look(wire::ElementType type, const void* data, size_t count) noexcept;

// The same for any layout. Memory that is dense in some order of its dimensions (channels-last,
// transposed, expanded, overlapping windows) is read once, in a line.
[[nodiscard]] Magnitude Look(const TensorView& view) noexcept;

[[nodiscard]] inline bool HasNonFinite(wire::ElementType type, const void* data,
                                       size_t count) noexcept {
  return Look(type, data, count).IsNonFinite();
}
[[nodiscard]] inline bool HasNonFinite(const TensorView& view) noexcept {
  return Look(view).IsNonFinite();
}

// kHasNan alone if there is a NaN, with which the search ends; else the bits kHasPosInf and
// kHasNegInf of what is present. An Inf beside a NaN changes no class, and where everything is NaN
// every op asks this of every tensor.
[[nodiscard]] uint8_t NonFiniteKinds(const TensorView& view) noexcept;

// The same of what was counted elsewhere.
[[nodiscard]] uint8_t KindsCounted(const wire::TensorStats& counted) noexcept;

// Fills element_type, ndim, shape, numel, nan, pos_inf, neg_inf, finite_min, finite_max,
// finite_mean and first_bad of `stats`, and leaves the rest alone.
//
// Counts are of the tensor's elements: one that an expanded dimension shows a hundred times counts
// a hundred times. A complex element counts once for each kind found in its parts, so the three can
// add up to more than there are bad elements. The finite figures go over the elements that are
// finite (of a complex one, over both parts, as real numbers) and are 0 when there are none. The
// mean is that of a double summation that does not overflow.
//
// One core, one or two nanoseconds an element: meant for after a hit.
void CountNonFinite(const TensorView& view, wire::TensorStats* stats) noexcept;

}  // namespace nanwatch
