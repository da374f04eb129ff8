// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/figures/trail.h"

#include <algorithm>

#include "shim/check/scan.h"
#include "shim/host/monotonic_clock.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

wire::TrailOp::Known KnownOf(Magnitude magnitude) {
  switch (magnitude.kind) {
    case Magnitude::Kind::kLargest:
      return wire::TrailOp::kExact;
    case Magnitude::Kind::kAtLeast:
      return wire::TrailOp::kAtLeast;
    case Magnitude::Kind::kNone:
    case Magnitude::Kind::kNonFinite:
      break;
  }
  return wire::TrailOp::kNothing;
}

}  // namespace

void Trail::Keep(const ThreadState* thread, uint64_t value) noexcept {
  Emitter* emitter = segment_.emitter();
  if (emitter == nullptr || thread->trail_steps == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t end = thread->trail_steps;
  const uint64_t begin = end - std::min<uint64_t>(end, wire::kTrailOpsMax);
  entry_.time_ns = MonotonicNs();
  entry_.ticket = emitter->DrawTicket();
  entry_.value = value;
  entry_.count = static_cast<uint32_t>(end - begin);
  const Layer* layer = nullptr;
  uint32_t layer_name = 0;
  for (uint64_t i = begin; i < end; ++i) {
    const TrailStep& step = thread->trail[i & (ThreadState::kTrailSteps - 1)];
    if (step.layer != layer) {
      layer = step.layer;
      layer_name = layer != nullptr ? InternText(*emitter, layer->path) : 0;
    }
    entry_.ops[i - begin] = {.largest = LargestValue(step.magnitude, step.type),
                             .op = segment_.NameOf(*step.op),
                             .layer = layer_name,
                             .iteration = step.iteration,
                             .known = static_cast<uint8_t>(KnownOf(step.magnitude)),
                             .phase = static_cast<uint8_t>(step.phase),
                             .element_type = static_cast<uint8_t>(step.type),
                             .reserved = 0};
  }
  emitter->PublishTrail(entry_);
}

}  // namespace nanwatch
