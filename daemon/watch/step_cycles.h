// SPDX-License-Identifier: Apache-2.0
// Which optimizer closes the cycle, for every time of a run.
//
// A job may have several optimizers at once (a GAN, a critic that is updated five times per
// generator), and one after another (pretraining, then training for good; k folds, each with a
// model of its own). A *span* is a part of the run in which the same ones are at work and one of
// them closes the cycle:
//
//   acts      A A A A A A B B B B B B B B B C B C B C B C
//   spans     |----A----->|------------- C ------------->     (B and C are at work together)
//
// What lies behind the last act of one that has retired (proto/wire/optimizer_habit.h) is settled
// some steps later. The part after that is divided anew for every reading (open_spans.h), so that a
// short last training is one of its own, too.
//
// One that acts again after its retirement is active again, and its silence counts as its longest
// gap.
//
// A pure fold of the steps' clocks, which the daemon keeps with the run's TrainingHistory. Bounded:
// four slots and kSpansMax spans. A step that changes nothing costs a comparison a slot.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "statistics.pb.h"

namespace nanwatch {

// Beyond, those in the middle are forgotten: the first half and the newest stay.
inline constexpr int kSpansMax = 256;
// StepSpan.slot of those forgotten.
inline constexpr uint32_t kSpanUnknown = UINT32_MAX;

// What is known of a step besides.
struct StepTraits {
  std::optional<uint32_t> optimizer;  // whose it was
  // The first in a notebook's cell. An optimizer that acts there for the first time begins another
  // training: those that acted before have retired.
  bool begins_cell = false;
  bool idle = false;  // nothing was checked in it
};
[[nodiscard]] StepTraits TraitsOf(const StepSummary& step);

// Goes on with what was counted when a step had ended. Clocks that are no newer than those seen
// change nothing.
void FoldStep(const Clocks& clocks, const StepTraits& traits, StepCycles& cycles);
inline void FoldStep(const Clocks& clocks, std::optional<uint32_t> optimizer, StepCycles& cycles) {
  FoldStep(clocks, StepTraits{.optimizer = optimizer}, cycles);
}

// All spans, oldest first; the last ones as far as they are known yet. Empty when no optimizer with
// a slot was seen.
[[nodiscard]] std::vector<StepSpan> SpansOf(const StepCycles& cycles);
// Cycles that were closed in all, whoever closed them.
[[nodiscard]] uint64_t CyclesClosed(const StepCycles& cycles);

}  // namespace nanwatch
