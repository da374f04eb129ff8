// SPDX-License-Identifier: Apache-2.0
// Bad values that an in-place op has left in memory where they were: nothing came to be.
//
// Threads: any.
#pragma once

#include "shim/classify/recent_values.h"
#include "shim/observe/events/known_bad.h"
#include "shim/observe/finding/finding.h"

namespace nanwatch {

// An in-place op left exactly as much bad as it found (an optimizer stepping over a parameter that
// holds a NaN row, a clipped gradient): nothing came to be, and what is known of the memory stays
// true. What is known may be of parts (entries of a bias were set to -Inf): they explain all that is
// bad if they count as much.
[[nodiscard]] bool IsUnchanged(const ThreadState* thread, const Frame& frame,
                               const BadOutput& output, KnownBad& known_bad) noexcept;

// What is left of the bad values that memory held:
// - good ones were put over some of them (`weight[rows] = new`),
// - or a parameter or buffer that was bad when its model was first called was copied from itself or
//   from a checkpoint, and holds no more bad values than it did.
// They are no finding. Nobody reads what is put where nothing transient is bad; bad values may have
// come in there then, and what is left is said to have a writer that was not seen.
// Of a finding that is classified. True: `known_bad` knows what is left.
[[nodiscard]] bool FollowRest(const Finding& finding, KnownBad& known_bad,
                              RecentValues& recent) noexcept;

}  // namespace nanwatch
