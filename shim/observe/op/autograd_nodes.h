// SPDX-License-Identifier: Apache-2.0
// Autograd nodes: a backward pass runs them, and what they call are its ops. A node stands in the
// stack of frames like an op, with the layer whose forward made it; the outermost one of a pass
// that was not seen before begins it.
#pragma once

#include <ATen/record_function.h>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class BackwardPasses;
class CompiledRegions;
class GpuEventQueue;
class LayerValues;
class LevelState;

class AutogradNodes {
 public:
  // All outlive it. `ops`: for the traits of ranges.
  AutogradNodes(const OpTable& ops, BackwardPasses& passes, CompiledRegions& regions,
                const LevelState& level, const GpuEventQueue& gpu,
                LayerValues& layer_values) noexcept
      : ops_(ops),
        passes_(passes),
        regions_(regions),
        level_(level),
        gpu_(gpu),
        layer_values_(layer_values) {}

  void Begin(ThreadState* thread, const at::RecordFunction& node);
  void End(ThreadState* thread);

 private:
  // Whether level layer has something to read, or left something to let go of.
  [[nodiscard]] bool HasCuts() const noexcept;
  void BeginPassIfNew(ThreadState* thread, bool outermost, const SequenceEntry* made_by);

  const OpTable& ops_;
  BackwardPasses& passes_;
  CompiledRegions& regions_;
  const LevelState& level_;
  const GpuEventQueue& gpu_;
  LayerValues& layer_values_;
};

}  // namespace nanwatch
