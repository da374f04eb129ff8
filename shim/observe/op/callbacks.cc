// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/callbacks.h"

#include <ATen/core/ivalue.h>

#include <cstring>
#include <vector>

#include "shim/check/scan.h"
#include "shim/observe/figures/trail.h"
#include "shim/observe/observer.h"
#include "shim/observe/op/autograd_nodes.h"
#include "shim/observe/op/op_begin.h"
#include "shim/observe/op/op_end.h"
#include "shim/observe/thread/checked_results.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/torch/record_access.h"
#include "shim/observe/unseen/collective_results.h"

namespace nanwatch::callbacks {
namespace {

// Programs without optimizers publish their counters now and then all the same.
constexpr uint64_t kChecksPerPublication = 1024;

// The commonest op has one output, dense in memory that the CPU can read. True if that is so and it
// is clean; false leaves everything to be done, with nothing counted. Inlined into the callback
// itself: the way of a clean op is one function.
[[gnu::always_inline]] inline bool IsOneCleanOutput(ThreadState* thread, const OpTraits& traits,
                                                    uint32_t at,
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
  if (plain.bytes > Cuts::kLookedAtAtOnceBytes &&
      Observer::Get()->level.watched() == wire::Level::kLayer) {
    return false;
  }
  const Magnitude seen = Look(plain.type, plain.data, plain.count);
  if (__builtin_expect(seen.IsNonFinite(), 0)) return false;
  Observer& observer = *Observer::Get();
  RecordTrail(thread, &traits, plain.type, seen, observer.steps.iteration(), observer.headroom);
  if (__builtin_expect((++thread->counters.tensors_checked & (kChecksPerPublication - 1)) == 0,
                       0)) {
    Observer::Get()->PublishLive(wire::LiveState::kWatching);
  }
  thread->counters.bytes_checked += plain.bytes;
  if (__builtin_expect(plain.count == 1, 0)) {
    thread->last_scalar.Remember(thread->frames[at].sequence, plain.type, plain.data, plain.bytes);
  }
  if (at != 0) RecordChecked(&thread->frames[at - 1], tensor.unsafeGetTensorImpl());
  return true;
}

// Not inlined: OpEnd would have to save registers for it, also where there is nothing to look at.
__attribute__((noinline, hot)) void EndWithOutputs(Observer& observer, ThreadState* thread,
                                                   const OpTraits& traits, uint32_t at,
                                                   const at::RecordFunction& op) {
  const bool may_be_update = IsPlainUpdateDue(observer, thread, traits);
  if (traits.skip || (traits.families & kNeedsEnd) != 0 || may_be_update ||
      !IsOneCleanOutput(thread, traits, at, op.outputs())) {
    return EndSlowly(op);
  }
  thread->depth = at;
}

bool IsOptimizerStep(const char* name) { return std::strncmp(name, "Optimizer.step#", 15) == 0; }

__attribute__((noinline)) std::unique_ptr<at::ObserverContext> StartOther(
    const at::RecordFunction& function) {
  return function.scope() == at::RecordScope::BACKWARD_FUNCTION ? NodeStart(function)
                                                                : RangeStart(function);
}
__attribute__((noinline)) void EndOther(const at::RecordFunction& function,
                                        at::ObserverContext* context) {
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) return NodeEnd();
  RangeEnd(function, context);
}

}  // namespace

// The way of a clean op while nothing bad is alive is written out here without a call, so that no
// register needs saving; everything else is left to BeginSlowly and EndSlowly, which handle all
// cases. What lies on it is marked hot, which puts it side by side: between two ops the job's own
// code has taken over the instruction cache.
__attribute__((hot)) std::unique_ptr<at::ObserverContext> Start(const at::RecordFunction& op) {
  if (__builtin_expect(op.scope() != at::RecordScope::FUNCTION, 0)) return StartOther(op);
  Observer& observer = *Observer::Get();
  ThreadState* thread = ThreadStates::Known();
  const c10::FunctionSchema* schema = SchemaOf(op);
  if (__builtin_expect(!observer.Active() || thread == nullptr, 0)) return BeginSlowly(op);
  const uint32_t at = thread->depth;
  const OpTraits* traits = observer.ops.Peek(schema);
  if (__builtin_expect(traits == nullptr || at >= ThreadState::kFramesMax || thread->attention() ||
                           observer.input_tracking.armed(),
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
  Observer& observer = *Observer::Get();
  ThreadState* thread = ThreadStates::Known();
  if (__builtin_expect(!observer.Active() || thread == nullptr, 0)) return EndSlowly(op);
  const uint32_t at = thread->depth - 1;  // wraps round to a large number where nothing is open
  if (__builtin_expect(
          at >= ThreadState::kFramesMax || thread->attention() || observer.input_tracking.armed(),
          0)) {
    return EndSlowly(op);
  }
  Frame& frame = thread->frames[at];
  const OpTraits& traits = *frame.op;
  if (frame.hidden) {
    thread->depth = at;
    return;
  }
  if (__builtin_expect(frame.cleared_flags != 0, 0)) return EndSlowly(op);
  if (!traits.ends_quietly) return EndWithOutputs(observer, thread, traits, at, op);
  thread->depth = at;
  // A view passes for looked at, so that a composite that returns it is not looked at again.
  const auto& outputs = op.outputs();
  if (at != 0 && thread->frames[at - 1].op->transparent && !outputs.empty() &&
      outputs.back().isTensor()) {
    RecordChecked(&thread->frames[at - 1], outputs.back().toTensor().unsafeGetTensorImpl());
  }
}

std::unique_ptr<at::ObserverContext> RangeStart(const at::RecordFunction& range) {
  Here here;
  const char* name = range.name();
  if (IsOptimizerStep(name)) {
    if (!Observer::Get()->Active()) Observer::WakeInChild();
    if (!FindHere(&here) || here.observer->python->ReportsSteps()) return nullptr;
    BusyScope busy(here.thread);
    here.observer->steps.OnStepBegin(*here.observer, here.thread, name,
                                     here.observer->python->OptimizerOnThisThread());
    return nullptr;
  }
  if (!IsCollective(name) || !FindHere(&here)) return nullptr;
  BusyScope busy(here.thread);
  return BeginCollective(*here.observer, here.thread, range);
}

void RangeEnd(const at::RecordFunction& range, at::ObserverContext* context) {
  Here here;
  if (context != nullptr) {
    if (!FindHere(&here)) return;
    BusyScope busy(here.thread);
    EndCollective(*here.observer, here.thread, context);
    return;
  }
  if (!IsOptimizerStep(range.name()) || !FindHere(&here)) return;
  // What the hooks do not end is ended where it began, or by an exception.
  if (here.observer->python->ReportsSteps()) return;
  BusyScope busy(here.thread);
  here.observer->steps.OnStepEnd(*here.observer, here.thread);
}

std::unique_ptr<at::ObserverContext> InputStart(const at::RecordFunction&) { return nullptr; }

}  // namespace nanwatch::callbacks
