// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/gpu/moment.h"

#include "shim/host/monotonic_clock.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/python/known_calls.h"
#include "shim/observe/python/python_bridge.h"

namespace nanwatch {

Moment TakeMoment(const MomentParts& parts, ThreadState* thread) noexcept {
  Moment moment;
  moment.place = LocationOf(thread);
  if (*moment.place.node != '\0') {
    Emitter* emitter = parts.segment.Ensure();
    moment.node = emitter != nullptr ? emitter->Intern(moment.place.node) : 0;
    moment.place.node = "";
  }
  moment.thread = thread;
  moment.time_ns = MonotonicNs();
  moment.in_optimizer = thread->optimizer_depth != 0;
  moment.in_region = thread->regions_open != 0;
  const KnownCall call = parts.calls.OfThisThread(parts.python);
  moment.call = call.call;
  moment.line = call.line;
  if (moment.place.phase == wire::Phase::kBackward) {
    moment.node_made_by = SequenceRef(MadeRunningNode(thread));
  }
  return moment;
}

}  // namespace nanwatch
