// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/op_begin.h"

#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "shim/observe/observer.h"
#include "shim/observe/op/compiled_regions.h"
#include "shim/observe/op/inputs.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/torch/record_access.h"

namespace nanwatch::callbacks {
namespace {

// Autocast is off where its key is excluded, which it is from the start and inside its own kernels
// (ATen/autocast_mode.cpp, set_autocast_enabled).
bool AutocastsNow(const OpTraits& op) {
  const c10::DispatchKeySet off = c10::impl::tls_local_dispatch_key_set().excluded_;
  return ((op.autocasts & kAutocastsOnCpu) != 0 && !off.has(c10::DispatchKey::AutocastCPU)) ||
         ((op.autocasts & kAutocastsOnCuda) != 0 && !off.has(c10::DispatchKey::AutocastCUDA));
}

void BeginRange(Observer& observer, ThreadState* thread, Frame& frame,
                const at::RecordFunction& range) {
  frame.kind = FrameKind::kRange;
  frame.range_name = range.name();
  if (frame.range_name[0] == 'T' && compiled_regions::IsRegion(frame.range_name)) {
    frame.is_region = true;
    if (thread->regions_open++ == 0) compiled_regions::Begin(observer, thread, frame.range_name);
    MarkCompiledRegion();
  }
}

// What the op reads on a GPU goes to the CPU, where it can be looked at and told when the op ends:
// a number, or a copy.
bool HandsToCpu(const ThreadState* thread, const Frame& frame,
                c10::ArrayRef<const c10::IValue> arguments) {
  if ((frame.op->families & kReadsScalar) != 0) return true;
  if ((frame.op->families & (kMoves | kEnters)) == 0 || frame.inputs_count == 0) return false;
  const InputSeen* inputs = &thread->inputs[frame.inputs_begin];
  if (frame.op->in_place) return inputs[0].gpu < 0;
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::IValue& value) {
    return value.isDevice() && value.toDevice().is_cpu();
  });
}

template <class Predicate>
bool AnyOf(const c10::IValue& value, Predicate predicate) {
  if (!value.isList()) return predicate(value);
  const auto list = value.toListRef();
  return std::any_of(list.begin(), list.end(), predicate);
}

bool IsOnGpu(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().is_cuda();
}

bool IsOnCpu(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor().defined() && value.toTensor().is_cpu()
                          : value.isDevice() && value.toDevice().is_cpu();
}

// A copy begins, with or without waiting. Where it goes from a GPU to the CPU, what is known of the
// source is there once the program has waited; and where nobody waits, what it leaves on the CPU
// may not have arrived when it ends, and is not to be read then.
__attribute__((noinline)) void BeginCopy(Observer& observer, ThreadState* thread, Frame& frame,
                                         c10::ArrayRef<const c10::IValue> arguments) {
  const OpTraits& op = *frame.op;
  if (arguments.size() < op.arguments) return;
  const auto own = arguments.slice(arguments.size() - op.arguments);
  const auto written = op.in_place ? own.slice(0, 1) : own;
  const auto any = [](c10::ArrayRef<const c10::IValue> of, bool (*is)(const c10::IValue&)) {
    return std::any_of(of.begin(), of.end(),
                       [is](const c10::IValue& value) { return AnyOf(value, is); });
  };
  if (!any(written, &IsOnCpu) || !any(own, &IsOnGpu)) return;
  frame.may_be_late = own[op.non_blocking].isBool() && own[op.non_blocking].toBool();
  if (observer.gpu_events.On()) observer.gpu_events.AskStream(thread);
}

void BeginOp(Observer& observer, ThreadState* thread, const at::RecordFunction& range) {
  const uint32_t at = thread->depth++;
  ++thread->counters.ops_seen;
  if (__builtin_expect(at >= ThreadState::kFramesMax, 0)) {
    ++thread->counters.unchecked[static_cast<int>(wire::Unchecked::kTooDeep)];
    return;
  }
  Frame& frame = thread->frames[at];
  const c10::FunctionSchema* schema = SchemaOf(range);
  frame.checked_count = 0;
  frame.inputs_count = 0;
  frame.cleared_flags = 0;
  frame.hidden = at != 0 && thread->frames[at - 1].hides;
  frame.sequence = range.seqNr();
  frame.first_event = observer.gpu_events.next_event();
  if (__builtin_expect(schema == nullptr, 0)) {
    frame.op = observer.ops.Range();
    frame.hides = frame.hidden = false;
    BeginRange(observer, thread, frame, range);
    if (frame.sequence >= 0) RememberSequence(thread, frame);
    return;
  }
  const OpTraits* op = observer.ops.Find(schema);
  frame.op = op;
  frame.kind = FrameKind::kOp;
  if (__builtin_expect(thread->expose_hidden != 0, 0)) {
    --thread->expose_hidden;
    frame.hidden = false;
  }
  frame.hides = frame.hidden || !op->transparent;
  if (__builtin_expect(op->autocasts != 0, 0) && frame.hides && !frame.hidden &&
      AutocastsNow(*op)) {
    frame.hides = false;
  }
  if (frame.hidden) return;
  if (__builtin_expect(observer.op_kernels.On(), 0)) observer.op_kernels.Begin(thread, &frame);
  if (frame.sequence >= 0) RememberSequence(thread, frame);
  const c10::ArrayRef<const c10::IValue> arguments = range.inputs();
  if (__builtin_expect(!arguments.empty(), 0)) {
    frame.inputs_begin = thread->inputs_used;
    if (observer.input_tracking.armed()) RecordInputs(observer, thread, frame, arguments);
    if (op->in_place && observer.gpu_events.AnyReceivedUnlooked()) {
      observer.gpu_events.LookAtReceived(observer, thread, frame);
    }
    if (__builtin_expect((op->families & kCommunicates) != 0, 0) && observer.gpu_events.On()) {
      observer.gpu_events.LookAtGiven(observer, thread, frame);
    }
    if (observer.gpu_events.AnyWaitForCut() && HandsToCpu(thread, frame, arguments)) {
      observer.gpu_events.CutAtScalarRead(observer, thread, frame);
    }
    if ((op->families & kMayNotWait) != 0) BeginCopy(observer, thread, frame, arguments);
  }
  if (__builtin_expect((op->families & (kReadsScalar | kHandsOut)) != 0, 0)) {
    if ((op->families & kHandsOut) != 0) {
      observer.collective_results.OnHandingOut(observer, thread, frame);
    } else if (observer.gpu_events.On()) {
      observer.gpu_events.AskStream(thread);
    }
  }
}

}  // namespace

std::unique_ptr<at::ObserverContext> ExposeUnderAutocast(Frame& frame) {
  if (AutocastsNow(*frame.op)) frame.hides = false;
  return nullptr;
}

std::unique_ptr<at::ObserverContext> BeginSlowly(const at::RecordFunction& op) {
  Here here;
  if (!Observer::Get()->Active()) Observer::WakeInChild();
  if (!FindHere(&here)) return nullptr;
  BeginOp(*here.observer, here.thread, op);
  return nullptr;
}

}  // namespace nanwatch::callbacks
