// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/callbacks.h"

#include <ATen/core/ivalue.h>

#include <vector>

#include "shim/check/scan.h"
#include "shim/observe/events/live_publisher.h"
#include "shim/observe/figures/trail.h"
#include "shim/observe/op/autograd_nodes.h"
#include "shim/observe/op/op_begin.h"
#include "shim/observe/op/op_end.h"
#include "shim/observe/op/op_path.h"
#include "shim/observe/op/ranges.h"
#include "shim/observe/thread/checked_results.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/torch/record_access.h"

namespace nanwatch::callbacks {
namespace {

// Programs without optimizers publish their counters now and then all the same.
constexpr uint64_t kChecksPerPublication = 1024;

// The commonest op has one output, dense in memory that the CPU can read. True if that is so and it
// is clean; false leaves everything to be done, with nothing counted. Inlined into the callback
// itself: the way of a clean op is one function.
[[gnu::always_inline]] inline bool IsOneCleanOutput(OpPath& path, ThreadState* thread,
                                                    const OpTraits& traits, uint32_t at,
                                                    const std::vector<c10::IValue>& outputs) {
  if (__builtin_expect(
          outputs.size() != 1 || (traits.families & kFills) != 0 || !outputs.front().isTensor(),
          0)) {
    return false;
  }
  const at::TensorBase& tensor = outputs.front().toTensor();
  if (traits.transparent) {
    if (!WasCheckedByChild(thread->frames[at], tensor.unsafeGetTensorImpl())) return false;
    if (at != 0) RecordChecked(&thread->frames[at - 1], tensor.unsafeGetTensorImpl());
    return true;
  }
  DensePlain plain;
  if (__builtin_expect(!ReadDense(tensor, &plain), 0)) return false;
  if (__builtin_expect(plain.bytes > path.sample_limit.bytes.load(std::memory_order_relaxed), 0)) {
    return false;
  }
  const Magnitude seen = Look(plain.type, plain.data, plain.count);
  if (__builtin_expect(seen.IsNonFinite(), 0)) return false;
  RecordTrail(thread, &traits, plain.type, seen,
              path.steps.iteration.load(std::memory_order_relaxed),
              [&path]() -> Headroom& { return path.others.headroom; });
  if (__builtin_expect((++thread->counters.tensors_checked & (kChecksPerPublication - 1)) == 0,
                       0)) {
    path.others.live.Publish(wire::LiveState::kWatching);
  }
  thread->counters.bytes_checked += plain.bytes;
  if (__builtin_expect(plain.count == 1, 0)) {
    thread->last_scalar.Remember(thread->frames[at].sequence, plain.type, plain.data, plain.bytes);
  }
  if (at != 0) RecordChecked(&thread->frames[at - 1], tensor.unsafeGetTensorImpl());
  return true;
}

void EndSlowly(const at::RecordFunction& op) {
  OpPath& path = OpPath::Current();
  ThreadState* thread = path.activity.ThisThread();
  if (thread != nullptr) path.others.end.End(thread, op);
}

// Not inlined: OpEnd would have to save registers for it, also where there is nothing to look at.
__attribute__((noinline, hot)) void EndWithOutputs(OpPath& path, ThreadState* thread,
                                                   const OpTraits& traits, uint32_t at,
                                                   const at::RecordFunction& op) {
  const bool may_be_update = IsPlainUpdateDue(path.steps, thread, traits);
  if (traits.skip || (traits.families & kNeedsEnd) != 0 || may_be_update) return EndSlowly(op);
  const std::vector<c10::IValue>& outputs = op.outputs();
  if (!IsOneCleanOutput(path, thread, traits, at, outputs) &&
      !path.others.end.Notes(thread, at, outputs)) {
    return EndSlowly(op);
  }
  thread->depth = at;
}

// An op begins, of whatever kind: a hidden one, one whose inputs are asked for, one that copies
// from a GPU, a compiled region. No context, as of the callback that ends in it.
__attribute__((noinline, cold)) std::unique_ptr<at::ObserverContext> BeginSlowly(
    const at::RecordFunction& op) {
  OpPath& path = OpPath::Woken();
  ThreadState* thread = path.activity.ThisThread();
  if (thread != nullptr) path.others.begin.Begin(thread, op);
  return nullptr;
}

std::unique_ptr<at::ObserverContext> StartNode(const at::RecordFunction& node) {
  OpPath& path = OpPath::Woken();
  ThreadState* thread = path.activity.ThisThread();
  if (thread != nullptr) path.others.nodes.Begin(thread, node);
  return nullptr;
}

__attribute__((noinline)) std::unique_ptr<at::ObserverContext> StartOther(
    const at::RecordFunction& function) {
  return function.scope() == at::RecordScope::BACKWARD_FUNCTION ? StartNode(function)
                                                                : RangeStart(function);
}

__attribute__((noinline)) void EndOther(const at::RecordFunction& function,
                                        at::ObserverContext* context) {
  if (function.scope() != at::RecordScope::BACKWARD_FUNCTION) return RangeEnd(function, context);
  OpPath& path = OpPath::Current();
  ThreadState* thread = path.activity.ThisThread();
  if (thread != nullptr) path.others.nodes.End(thread);
}

}  // namespace

// The way of a clean op while nothing bad is alive is written out here without a call, so that no
// register needs saving; everything else is left to BeginSlowly and EndSlowly, which handle all
// cases. What lies on it is marked hot, which puts it side by side: between two ops the job's own
// code has taken over the instruction cache.
__attribute__((hot)) std::unique_ptr<at::ObserverContext> Start(const at::RecordFunction& op) {
  if (__builtin_expect(op.scope() != at::RecordScope::FUNCTION, 0)) return StartOther(op);
  OpPath& path = OpPath::Current();
  ThreadState* thread = ThreadStates::Known();
  const c10::FunctionSchema* schema = SchemaOf(op);
  if (__builtin_expect(!path.activity.On() || thread == nullptr, 0)) return BeginSlowly(op);
  const uint32_t at = thread->depth;
  const OpTraits* traits = path.ops.Peek(schema);
  if (__builtin_expect(traits == nullptr || at >= ThreadState::kFramesMax || thread->attention() ||
                           path.input_tracking.armed(),
                       0)) {
    return BeginSlowly(op);
  }
  thread->depth = at + 1;
  ++thread->counters.ops_seen;
  Frame& frame = thread->frames[at];
  const bool hidden = at != 0 && thread->frames[at - 1].hides;
  frame.op = traits;
  frame.sequence = op.seqNr();
  frame.kind = FrameKind::kOp;
  frame.hidden = hidden;
  frame.hides = hidden || !traits->transparent;
  frame.checked_count = 0;
  frame.inputs_count = 0;
  frame.cleared_flags = 0;
  if (!hidden && frame.sequence >= 0) RememberSequence(thread, frame);
  if (__builtin_expect(traits->autocasts != 0 && !hidden, 0)) return ExposeUnderAutocast(frame);
  return nullptr;
}

__attribute__((hot)) void End(const at::RecordFunction& op, at::ObserverContext* context) {
  if (__builtin_expect(op.scope() != at::RecordScope::FUNCTION, 0)) return EndOther(op, context);
  OpPath& path = OpPath::Current();
  ThreadState* thread = ThreadStates::Known();
  if (__builtin_expect(!path.activity.On() || thread == nullptr, 0)) return EndSlowly(op);
  const uint32_t at = thread->depth - 1;  // wraps round to a large number where nothing is open
  if (__builtin_expect(
          at >= ThreadState::kFramesMax || thread->attention() || path.input_tracking.armed(), 0)) {
    return EndSlowly(op);
  }
  Frame& frame = thread->frames[at];
  const OpTraits& traits = *frame.op;
  if (frame.hidden) {
    thread->depth = at;
    return;
  }
  if (__builtin_expect(frame.cleared_flags != 0, 0)) return EndSlowly(op);
  if (!traits.ends_quietly) return EndWithOutputs(path, thread, traits, at, op);
  thread->depth = at;
  // A view passes for looked at, so that a composite that returns it is not looked at again.
  const auto& outputs = op.outputs();
  if (at != 0 && thread->frames[at - 1].op->transparent && !outputs.empty() &&
      outputs.back().isTensor()) {
    RecordChecked(&thread->frames[at - 1], outputs.back().toTensor().unsafeGetTensorImpl());
  }
}

std::unique_ptr<at::ObserverContext> RangeStart(const at::RecordFunction& range) {
  const bool is_step = Ranges::IsOptimizerStep(range.name());
  OpPath& path = is_step ? OpPath::Woken() : OpPath::Current();
  ThreadState* thread = path.activity.ThisThread();
  return thread != nullptr ? path.others.ranges.Begin(thread, range) : nullptr;
}

void RangeEnd(const at::RecordFunction& range, at::ObserverContext* context) {
  OpPath& path = OpPath::Current();
  ThreadState* thread = path.activity.ThisThread();
  if (thread != nullptr) path.others.ranges.End(thread, range, context);
}

std::unique_ptr<at::ObserverContext> InputStart(const at::RecordFunction&) { return nullptr; }

}  // namespace nanwatch::callbacks
