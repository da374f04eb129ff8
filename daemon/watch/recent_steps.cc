// SPDX-License-Identifier: Apache-2.0
#include "daemon/watch/recent_steps.h"

#include <cmath>

namespace nanwatch {

uint64_t UpdatesBy(const Clocks& clocks) {
  return uint64_t{clocks.optimizer_ranges()} + clocks.plain_updates() + clocks.scaler_skips();
}

void FoldRecentStep(const StepSummary& step, TrainingHistory& history) {
  const bool loss = step.has_loss() && std::isfinite(step.loss());
  const bool norm = step.has_gradient_norm() && std::isfinite(step.gradient_norm());
  if (!loss && !norm) return;
  if (history.recent_size() == kRecentStepsMax)
    history.mutable_recent()->erase(history.recent().begin());
  RecentStep& recent = *history.add_recent();
  recent.set_updates(UpdatesBy(step.clocks()));
  recent.set_optimizer(step.optimizer());
  if (loss) recent.set_loss(step.loss());
  if (norm) recent.set_gradient_norm(step.gradient_norm());
}

}  // namespace nanwatch
