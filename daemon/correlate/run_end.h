// SPDX-License-Identifier: Apache-2.0
// How a process ended, as far as anybody knows.
#pragma once

#include "verdict.pb.h"

namespace nanwatch {

// By a signal, or after being asked to end by one. Not by SIGINT: Ctrl-C is the user's own, and
// whoever ends a training so has seen enough of it.
[[nodiscard]] bool WasKilled(const RunState& state);

// By itself, with an exit status other than 0; where the status is not known, by an exception that
// nobody caught. False while it runs, and where nobody knows.
[[nodiscard]] bool EndedWithError(const RunFacts& facts);

// With exit status 0. False while it runs, and where nobody knows.
[[nodiscard]] bool EndedWell(const RunState& state);

// By an exception that nobody caught, and whose message spoke of values that are not finite.
[[nodiscard]] bool EndedByBadValue(const RunFacts& facts);

}  // namespace nanwatch
