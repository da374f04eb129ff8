// SPDX-License-Identifier: Apache-2.0
// What each thread's ops made before something went wrong: the last clean results of the ops that
// were looked at, with their largest magnitude. Nobody reads it but a finding that may be an
// origin, which takes a copy along into the segment.
//
// Noting is the owning thread's own, a few stores an op. GPU's tensors are not in it: their checks
// tell nothing of what is clean.
#pragma once

#include <mutex>

#include "proto/wire/segment.h"
#include "shim/check/magnitude.h"
#include "shim/observe/figures/headroom.h"
#include "shim/observe/figures/layer_peaks.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class ProcessSegment;

// An op of this thread left a clean result. `iteration`: StepMarks's. What is near the limit of its
// type goes to the Headroom that `headroom_of()` gives, which is asked for that alone: on the path
// of a clean op it would be a load for nothing.
template <class HeadroomOf>
[[gnu::always_inline]] inline void RecordTrail(ThreadState* thread, const OpTraits* op,
                                               wire::ElementType type, Magnitude magnitude,
                                               uint32_t iteration,
                                               HeadroomOf&& headroom_of) noexcept {
  const bool in_node = __builtin_expect(thread->nodes_open != 0, 0) && ScopeDepth() == 0;
  TrailStep& step = thread->trail[thread->trail_steps++ & (ThreadState::kTrailSteps - 1)];
  step.op = op;
  step.layer = in_node ? thread->node_layer : CurrentLayer();
  step.magnitude = magnitude;
  step.iteration = iteration;
  step.type = type;
  step.phase = in_node                        ? wire::Phase::kBackward
               : thread->optimizer_depth != 0 ? wire::Phase::kOptimizer
                                              : wire::Phase::kForward;
  if (in_node || step.layer == nullptr || magnitude.kind == Magnitude::Kind::kNone) return;
  LayerPeaks::Record(step.layer, type, magnitude);
  if (__builtin_expect(Headroom::IsNear(type, magnitude), 0)) {
    headroom_of().Record(step.op, step.layer, step.type, step.magnitude);
  }
}

// The same where that is at hand.
inline void RecordTrail(ThreadState* thread, const OpTraits* op, wire::ElementType type,
                        Magnitude magnitude, uint32_t iteration, Headroom& headroom) noexcept {
  RecordTrail(thread, op, type, magnitude, iteration,
              [&headroom]() -> Headroom& { return headroom; });
}

class Trail {
 public:
  // `segment` outlives it.
  explicit Trail(const ProcessSegment& segment) noexcept : segment_(segment) {}

  // Publishes what the calling thread did before the finding `value` (its ticket). Any thread.
  void Keep(const ThreadState* thread, uint64_t value) noexcept;

 private:
  const ProcessSegment& segment_;
  std::mutex mutex_;
  wire::TrailEntry entry_{};  // too large for a stack of the job's
};

}  // namespace nanwatch
