// SPDX-License-Identifier: Apache-2.0
#include "daemon/watch/dead_steps.h"

#include <cmath>

#include "daemon/watch/training_alarms.h"

namespace nanwatch {

void FoldDeadStep(const StepSummary& step, TrainingHistory& history) {
  const bool parameters_bad = (step.flags() & step_flags::kParametersBad) != 0;
  if (!history.has_dead() && !parameters_bad) return;
  if (history.dead().ended() || (parameters_bad && !step.has_loss())) return;
  if (!parameters_bad || std::isfinite(step.loss())) {
    if (history.has_dead()) history.mutable_dead()->set_ended(true);
    return;
  }
  DeadSteps& dead = *history.mutable_dead();
  if (!dead.has_first()) {
    *dead.mutable_first() = MomentOf(step).clocks;
    dead.set_loss(step.loss());
  }
  *dead.mutable_last() = MomentOf(step).clocks;
}

}  // namespace nanwatch
