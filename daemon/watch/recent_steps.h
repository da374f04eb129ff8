// SPDX-License-Identifier: Apache-2.0
// Loss and gradient norm of the newest steps, so that an incident can be compared with the steps
// before it. Steps whose parameters were bad are left out, so the newest are those before the
// parameters went bad.
//
// A pure fold, 16 steps at most.
#pragma once

#include <cstdint>

#include "statistics.pb.h"

namespace nanwatch {

inline constexpr int kRecentStepsMax = 16;

void FoldRecentStep(const StepSummary& step, TrainingHistory& history);

// Updates that had ended by then, skipped ones included: RecentStep.updates.
[[nodiscard]] uint64_t UpdatesBy(const Clocks& clocks);

}  // namespace nanwatch
