// SPDX-License-Identifier: Apache-2.0
// When something in a run was, on the clock of the host. Pure.
#pragma once

#include <cstdint>

#include "verdict.pb.h"

namespace nanwatch {

// Nanoseconds since 1970 UTC of a time of the process's CLOCK_MONOTONIC.
[[nodiscard]] int64_t RealNs(uint64_t monotonic_ns, const Run& run);

// CLOCK_MONOTONIC when the record with this ticket was written; 0 where it is not kept.
[[nodiscard]] uint64_t TimeOfRecord(uint64_t ticket, const RunFacts& facts);

}  // namespace nanwatch
