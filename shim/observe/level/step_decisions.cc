// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/level/step_decisions.h"

#include "shim/observe/events/live_publisher.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/level/level_control.h"
#include "shim/observe/level/measuring.h"
#include "shim/observe/level/sampling.h"

namespace nanwatch {

void StepDecisions::OnBoundary(ThreadState* thread) noexcept { level_.Look(thread); }

void StepDecisions::OnBadRead(ThreadState* thread) noexcept { sampling_.Resolve(thread); }

void StepDecisions::OnStep(ThreadState* thread, const StepEnded& step) noexcept {
  const Suspicion::Step seen{.loss = step.loss,
                             .gradient_norm = step.gradient_norm,
                             .near_limit = step.near_limit,
                             .loss_known = step.loss_known,
                             .norm_known = step.norm_known};
  // Without an optimizer's ranges nobody would ever choose again.
  const bool has_optimizer = step.clocks.optimizer_ranges != 0;
  const bool chooses = has_optimizer || level_.asked() == wire::Level::kSampled;
  if (chooses && !poison_.Blind()) {
    level_.OnStep(
        thread,
        {.ns = step.step_ns, .watched = step.watched, .kind = step.optimizer, .seen = seen});
  }
  if (has_optimizer) {
    measuring_.OnStep(thread, {.time_ns = step.time_ns,
                               .clocks = step.clocks,
                               .calm = step.calm,
                               .off = step.off,
                               .idle = step.watched == wire::Level::kIdle,
                               .readable = step.readable,
                               .seen = seen});
  }
  live_.Publish(wire::LiveState::kWatching);
}

bool StepDecisions::ReadsAfterStep() const noexcept { return measuring_.ReadsAfterStep(); }

bool StepDecisions::IsUnread() const noexcept { return measuring_.IsUnread(); }

bool StepDecisions::TakeCutShort() noexcept { return measuring_.TakeCutShort(); }

void StepDecisions::RecordStepEnded() noexcept { measuring_.RecordStepEnded(); }

void StepDecisions::ReadAfter(ThreadState* thread) noexcept { measuring_.ReadAfter(thread); }

}  // namespace nanwatch
