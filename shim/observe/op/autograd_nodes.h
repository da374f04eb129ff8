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

class AutogradNodes {
 public:
  // All outlive it. `ops`: for the traits of ranges.
  AutogradNodes(const OpTable& ops, BackwardPasses& passes, CompiledRegions& regions) noexcept
      : ops_(ops), passes_(passes), regions_(regions) {}

  void Begin(ThreadState* thread, const at::RecordFunction& node);
  void End(ThreadState* thread);

 private:
  void BeginPassIfNew(ThreadState* thread, bool outermost, const SequenceEntry* made_by);

  const OpTable& ops_;
  BackwardPasses& passes_;
  CompiledRegions& regions_;
};

}  // namespace nanwatch
