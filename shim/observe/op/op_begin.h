// SPDX-License-Identifier: Apache-2.0
// An op begins, of whatever kind: a hidden one, one whose inputs are asked for, one that copies
// from a GPU, a compiled region. The commonest case, where nothing of this holds, is written out in
// callbacks.cc.
#pragma once

#include <ATen/record_function.h>

#include <memory>

#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

class Capsules;
class CollectiveResults;
class CompiledRegions;
class GpuEventQueue;
class InputRecorder;
class InputTracking;
class OpKernels;

class OpBegin {
 public:
  // All outlive it.
  OpBegin(OpTable& ops, const InputTracking& input_tracking, InputRecorder& inputs,
          GpuEventQueue& gpu, OpKernels& kernels, CompiledRegions& regions,
          CollectiveResults& collectives, Capsules& capsules) noexcept
      : ops_(ops),
        input_tracking_(input_tracking),
        inputs_(inputs),
        gpu_(gpu),
        kernels_(kernels),
        regions_(regions),
        collectives_(collectives),
        capsules_(capsules) {}

  void Begin(ThreadState* thread, const at::RecordFunction& op);

 private:
  void BeginRange(ThreadState* thread, Frame& frame, const at::RecordFunction& range);
  void BeginKnown(ThreadState* thread, Frame& frame, const at::RecordFunction& op);
  void BeginWithArguments(ThreadState* thread, Frame& frame,
                          c10::ArrayRef<const c10::IValue> arguments);
  void BeginCopy(ThreadState* thread, Frame& frame, c10::ArrayRef<const c10::IValue> arguments);

  OpTable& ops_;
  const InputTracking& input_tracking_;
  InputRecorder& inputs_;
  GpuEventQueue& gpu_;
  OpKernels& kernels_;
  CompiledRegions& regions_;
  CollectiveResults& collectives_;
  Capsules& capsules_;
};

// Under autocast the op casts its arguments, and calls itself on the results: the computation is
// that one's. No context, as of the callback that ends in it.
std::unique_ptr<at::ObserverContext> ExposeUnderAutocast(Frame& frame);

}  // namespace nanwatch
