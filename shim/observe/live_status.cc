// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/live_status.h"

#include "shim/observe/events/process_segment.h"
#include "shim/observe/gpu/event_queue.h"
#include "shim/observe/level/level_control.h"
#include "shim/observe/level/measuring.h"
#include "shim/observe/step/step_losses.h"
#include "shim/observe/step/step_progress.h"

namespace nanwatch {

void LiveStatus::Publish(wire::LiveState state) noexcept {
  Emitter* ready = segment_.emitter();
  if (ready == nullptr) return;
  const ThreadCounters sum = ThreadStates::Sum();
  LiveFacts facts;
  facts.ops_seen = sum.ops_seen;
  facts.tensors_checked = sum.tensors_checked;
  facts.bytes_checked = sum.bytes_checked;
  facts.values_bad = sum.values_bad;
  for (int i = 0; i < wire::kUncheckedReasons; ++i) facts.unchecked[i] = sum.unchecked[i];
  steps_.StepsWatched(facts.steps_watched);
  facts.overhead = measuring_.Read();
  facts.state = state;
  facts.level = level_.asked();
  facts.gpus = gpu_.gpus();
  facts.control_applied = level_.applied();
  facts.clocks = steps_.Now();
  facts.loss_known = losses_.Last(&facts.loss);
  ready->PublishLive(facts);
}

}  // namespace nanwatch
