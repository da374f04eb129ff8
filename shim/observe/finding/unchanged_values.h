// SPDX-License-Identifier: Apache-2.0
// Bad values that an in-place op has left in memory where they were: nothing came to be.
//
// Threads: any.
#pragma once

#include "shim/observe/events/known_bad.h"
#include "shim/observe/finding/finding.h"

namespace nanwatch {

// An in-place op left exactly as much bad as it found (an optimizer stepping over a parameter that
// holds a NaN row, a clipped gradient): nothing came to be, and what is known of the memory stays
// true. What is known may be of parts (entries of a bias were set to -Inf): they explain all that is
// bad if they count as much.
[[nodiscard]] bool IsUnchanged(const ThreadState* thread, const Frame& frame,
                               const BadOutput& output, KnownBad& known_bad) noexcept;

// Good values were put over some of the bad ones (`weight[rows] = new`): the others are what they
// were, and are not read. Where nobody asked for inputs, bad ones may have been among what was put:
// nothing shows it, and what is left is said to have a writer that was not seen.
// Of a finding that is classified; `known_bad` knows then what is left.
[[nodiscard]] bool FollowRest(const Finding& finding, KnownBad& known_bad) noexcept;

}  // namespace nanwatch
